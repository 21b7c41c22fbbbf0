import { useMemo, useState } from "react";
import type { RunSummary } from "../../api/generated";
import { useActions } from "../../app/palette";
import { useRunWorkflow } from "../../form/useRunWorkflow";
import { ImportDialog } from "../../start/ImportDialog";
import { NewWorkflow } from "../../start/NewWorkflow";
import { Button } from "../../ui/Button/Button";
import css from "./Home.module.css";

/** Start what ran last, or begin something new. */
export function StartButtons({ last }: { last: RunSummary | undefined }) {
  const runner = useRunWorkflow();
  const [open, setOpen] = useState<"new" | "import">();
  const close = () => setOpen(undefined);
  const actions = useMemo(
    () => [
      { label: "New workflow", run: () => setOpen("new") },
      { label: "Import a workflow", run: () => setOpen("import") },
    ],
    [],
  );
  useActions(actions);
  return (
    <div className={css.buttons}>
      {last && (
        <Button
          look="primary"
          disabled={runner.isBusy}
          onClick={() => void runner.run(last.workflowId)}
        >
          Run {last.workflowName}
        </Button>
      )}
      <Button onClick={() => setOpen("new")}>New workflow</Button>
      <Button onClick={() => setOpen("import")}>Import</Button>
      {runner.dialog}
      {open === "new" && <NewWorkflow onClose={close} />}
      {open === "import" && <ImportDialog onClose={close} />}
    </div>
  );
}
