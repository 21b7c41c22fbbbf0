import { useMemo, useState } from "react";
import type { ListedWorkflow } from "../../api/generated";
import { useApi } from "../../api/query";
import { useActions } from "../../app/palette";
import { Page } from "../../app/shell/Page";
import { useRunWorkflow } from "../../form/useRunWorkflow";
import { ImportDialog } from "../../start/ImportDialog";
import { NewWorkflow } from "../../start/NewWorkflow";
import { Button } from "../../ui/Button/Button";
import { Empty } from "../../ui/Empty/Empty";
import { Failure } from "../../ui/Failure/Failure";
import { plural } from "../../ui/format";
import { Rows } from "../../ui/Rows/Rows";
import { DropArea } from "./DropArea";
import { Example } from "./Example";
import { matches } from "./search";
import { WorkflowRow } from "./WorkflowRow";
import css from "./Workflows.module.css";

/** All workflows: open, run, copy, delete, begin, import. */
export default function Workflows() {
  const { data, error, refetch } = useApi("GET /api/workflows", {}, { refetchInterval: 5_000 });
  const [query, setQuery] = useState("");
  const [isMaking, setMaking] = useState(false);
  const [imported, setImported] = useState<{ file?: File } | null>(null);
  const runner = useRunWorkflow();
  const actions = useMemo(
    () => [
      { label: "New workflow", run: () => setMaking(true) },
      { label: "Import a workflow", run: () => setImported({}) },
    ],
    [],
  );
  useActions(actions);
  const all = data?.workflows ?? [];
  const shown = all.filter((each) => matches(each, query));
  return (
    <Page crumbs={["Workflows"]}>
      <DropArea onFile={(file) => setImported({ file })}>
        <header className={css.header}>
          <input
            type="search"
            aria-label="Search workflows"
            placeholder="Search workflows"
            value={query}
            onChange={(event) => setQuery(event.target.value)}
          />
          <span className="quiet">{data && plural(shown.length, "workflow")}</span>
          <span className={css.buttons}>
            <Button onClick={() => setImported({})}>Import</Button>
            <Button look="primary" onClick={() => setMaking(true)}>
              New workflow
            </Button>
          </span>
        </header>
        {error && <Failure error={error} retry={() => void refetch()} />}
        {data && all.every(hasNotRun) && <Example />}
        {data && shown.length === 0 && (
          <Empty>
            {all.length ? `No workflow matches “${query}”.` : "There is no workflow yet."}
          </Empty>
        )}
        {shown.length > 0 && (
          <Rows label="Workflows" columns="minmax(0, 2fr) auto auto auto minmax(120px, 1fr) auto">
            {shown.map((each) => (
              <WorkflowRow
                key={`${each.source} ${each.id}`}
                workflow={each}
                taken={all.map(({ id }) => id)}
                runner={runner}
              />
            ))}
          </Rows>
        )}
      </DropArea>
      {isMaking && <NewWorkflow onClose={() => setMaking(false)} />}
      {imported && <ImportDialog {...imported} onClose={() => setImported(null)} />}
      {runner.dialog}
    </Page>
  );
}

function hasNotRun({ lastRun }: ListedWorkflow): boolean {
  return lastRun === undefined;
}
