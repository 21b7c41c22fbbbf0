import { useMemo, useRef } from "react";
import { useLocation } from "wouter";
import type { RunSummary } from "../../api/generated";
import { useActions } from "../../app/palette";
import { Button } from "../../ui/Button/Button";
import { complain } from "../../ui/Toast/toast";
import css from "./Home.module.css";
import { importFile, newWorkflow, startRun } from "./starting";

/** Start what ran last, or begin something new. */
export function StartButtons({ last }: { last: RunSummary | undefined }) {
  const [, go] = useLocation();
  const file = useRef<HTMLInputElement>(null);
  const actions = useMemo(
    () => [
      { label: "New workflow", run: () => void newWorkflow().then(go).catch(complain) },
      { label: "Import a workflow", run: () => file.current?.click() },
    ],
    [go],
  );
  useActions(actions);
  return (
    <div className={css.buttons}>
      {last && (
        <Button
          look="primary"
          onClick={() => void startRun(last.workflowId).then(go).catch(complain)}
        >
          Run {last.workflowName}
        </Button>
      )}
      <Button onClick={() => void newWorkflow().then(go).catch(complain)}>New workflow</Button>
      <Button onClick={() => file.current?.click()}>Import</Button>
      <input
        ref={file}
        type="file"
        hidden
        aria-label="Workflow file"
        accept=".json,.yaml,.yml"
        onChange={(event) => {
          const chosen = event.target.files?.[0];
          event.target.value = "";
          if (chosen) void importFile(chosen).then(go).catch(complain);
        }}
      />
    </div>
  );
}
