import { useMemo, useState } from "react";
import { call } from "../api/client";
import { useApi } from "../api/query";
import { Counts } from "../diff/FileList";
import { Button } from "../ui/Button/Button";
import { Dialog } from "../ui/Dialog/Dialog";
import { Failure } from "../ui/Failure/Failure";
import { plural } from "../ui/format";
import { Scroll } from "../ui/Scroll/Scroll";
import { safeText } from "../ui/safeText";
import css from "./Dialogs.module.css";
import { restoredFiles, rewindSteps } from "./rewind";
import type { Step } from "./steps";

interface Props {
  runId: string;
  to: string;
  steps: readonly Step[];
  onClose: () => void;
  onStarted: (runId: string) => void;
}

/** Shows what a rewind keeps, runs again and restores, before it is done. */
export function RewindDialog({ runId, to, steps, onClose, onStarted }: Props) {
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const [current, setCurrent] = useState(false);
  const path = { run_id: runId };
  const fresh = { staleTime: 0, gcTime: 0 };
  const plan = useApi("GET /api/runs/{run_id}/rewind", { path, query: { step: to } }, fresh);
  const { kept, again } = useMemo(() => rewindSteps(steps, to), [steps, to]);
  const files = plan.data ? restoredFiles(plan.data) : 0;
  const rewind = async () => {
    setBusy(true);
    setError(null);
    try {
      const body = { step: to, currentWorkflow: current };
      const started = await call("POST /api/runs/{run_id}/rewind", { path, body });
      onStarted(started.runId);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <Dialog
      wide
      title={`Rewind to ${safeText(to)}`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="primary" disabled={!plan.data || isBusy} onClick={() => void rewind()}>
            Rewind and restore {plural(files, "file")}
          </Button>
        </>
      }
    >
      <p className={css.lead}>
        A new run begins at this step, with the files as they were then. This run stays as it is.
      </p>
      {plan.error && <Failure error={plan.error} />}
      {error !== null && <Failure error={error} />}
      <div className={css.columns}>
        <Paths title={`Kept: ${plural(kept.length, "step")}`} steps={kept} />
        <Paths title={`Run again: ${plural(again.length, "step")}`} steps={again} />
      </div>
      {plan.data?.directories.map(({ directory, files: changed }) => (
        <section key={directory} className={css.part}>
          <h3>
            <code>{safeText(directory)}</code>
          </h3>
          {changed === null && <p>The directory is made again.</p>}
          {changed?.length === 0 && <p className="quiet">No file changes.</p>}
          <Scroll className={css.files}>
            <ul aria-label="Files restored">
              {changed?.map((file) => (
                <li key={file.path}>
                  <span className="quiet">{file.kind}</span> <code>{safeText(file.path)}</code>{" "}
                  <Counts insertions={file.insertions} deletions={file.deletions} />
                </li>
              ))}
            </ul>
          </Scroll>
        </section>
      ))}
      {plan.data?.directories.length === 0 && (
        <p className="quiet">The run has no snapshots of directories: no file is restored.</p>
      )}
      {plan.data?.workflowFile && (
        <label className={css.choice}>
          <input
            type="checkbox"
            checked={current}
            disabled={plan.data.workflowFile.state !== "changed"}
            onChange={(event) => setCurrent(event.target.checked)}
          />
          <span>
            The workflow's file is {plan.data.workflowFile.state}. Go on with the file as it is now.
          </span>
        </label>
      )}
    </Dialog>
  );
}

function Paths({ title, steps }: { title: string; steps: readonly Step[] }) {
  return (
    <section className={css.part}>
      <h3>{title}</h3>
      <Scroll className={css.paths}>
        <ol>
          {steps.map((step) => (
            <li key={step.seq}>
              <code>{safeText(step.path)}</code>
            </li>
          ))}
        </ol>
      </Scroll>
    </section>
  );
}
