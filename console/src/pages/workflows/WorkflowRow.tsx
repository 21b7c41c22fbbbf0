import { useState } from "react";
import { Link, useLocation } from "wouter";
import { call } from "../../api/client";
import type { ListedWorkflow } from "../../api/generated";
import { refresh } from "../../api/query";
import type { useRunWorkflow } from "../../form/useRunWorkflow";
import { useAsking } from "../../runlist/useAsking";
import { stateOf } from "../../runlist/words";
import { duplicate } from "../../start/workflows";
import { Button } from "../../ui/Button/Button";
import { Confirm } from "../../ui/Confirm/Confirm";
import { ago, plural } from "../../ui/format";
import { Menu } from "../../ui/Menu/Menu";
import { Cell, Line, Row } from "../../ui/Rows/Rows";
import { StateMark } from "../../ui/StateMark/StateMark";
import { safeText } from "../../ui/safeText";
import { complain, say } from "../../ui/Toast/toast";
import { useNow } from "../../ui/useNow";
import css from "./Workflows.module.css";

interface Props {
  workflow: ListedWorkflow;
  taken: string[];
  runner: ReturnType<typeof useRunWorkflow>;
}

export function WorkflowRow({ workflow, taken, runner }: Props) {
  const { id, source, format, version, lastRun, errors, problems } = workflow;
  const [, go] = useLocation();
  const [isDeleting, setDeleting] = useState(false);
  const now = useNow();
  const asking = useAsking();
  const name = safeText(workflow.name || id);
  const cannotRun = errors ? `It has ${plural(errors, "error")}.` : undefined;
  const remove = () =>
    call("DELETE /api/workflows/{workflow_id}", { path: { workflow_id: id } })
      .then(() => {
        refresh("GET /api/workflows");
        say(`Deleted ${name}.`);
      })
      .catch(complain);
  return (
    <Row name={name}>
      <Line>
        <Cell grow title={safeText(workflow.file)}>
          <Link href={`/w/${encodeURIComponent(id)}`} className={css.name}>
            {name}
          </Link>{" "}
          {name !== id && <span className={css.id}>{safeText(id)}</span>}
        </Cell>
        <Cell>
          <span className="quiet">
            {source === "library" ? "preset" : format === "yaml" ? "loop file" : "yours"}
          </span>
        </Cell>
        <Cell end>
          <span className="number quiet">v{version}</span>
        </Cell>
      </Line>
      <Line>
        <Cell>
          {problems > 0 && (
            <span className={css.problems} data-bad={errors > 0 || undefined}>
              {errors > 0 ? `✕ ${plural(errors, "error")}` : `! ${plural(problems, "warning")}`}
            </span>
          )}
        </Cell>
        <Cell grow>
          {lastRun ? (
            <Link href={`/r/${encodeURIComponent(lastRun.runId)}`} className={css.last}>
              <StateMark state={stateOf(lastRun, asking)} />{" "}
              <span className="quiet">{ago(lastRun.finishedAt ?? lastRun.startedAt, now)}</span>
            </Link>
          ) : (
            <span className="quiet">never ran</span>
          )}
        </Cell>
        <Cell end wrap>
          <span className={css.actions}>
            <Button
              aria-label={`Run ${name}`}
              disabled={cannotRun !== undefined || runner.isBusy}
              title={cannotRun}
              onClick={() => void runner.run(id)}
            >
              Run
            </Button>
            <Menu
              label={`Actions for ${name}`}
              items={[
                {
                  label: "Run with inputs…",
                  disabled: cannotRun,
                  onSelect: () => runner.ask(id),
                },
                {
                  label: "Duplicate",
                  onSelect: () => void duplicate(id, taken).then(go).catch(complain),
                },
                { label: "Runs", onSelect: () => go(`/runs?workflow=${encodeURIComponent(id)}`) },
                {
                  label: "Delete…",
                  disabled: source === "library" ? "A preset cannot be deleted." : undefined,
                  onSelect: () => setDeleting(true),
                },
              ]}
            >
              ⋯
            </Menu>
          </span>
        </Cell>
      </Line>
      {isDeleting && (
        <Confirm
          title={`Delete ${name}?`}
          action="Delete"
          onClose={() => setDeleting(false)}
          onConfirm={() => void remove()}
        >
          Its file {safeText(workflow.file)} is removed. Its runs stay.
        </Confirm>
      )}
    </Row>
  );
}
