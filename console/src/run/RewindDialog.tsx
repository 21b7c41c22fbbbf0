import { useState } from "react";
import { call } from "../api/client";
import type { RewoundSteps } from "../api/generated";
import { useApi } from "../api/query";
import { Counts } from "../diff/FileList";
import { Button } from "../ui/Button/Button";
import { Dialog } from "../ui/Dialog/Dialog";
import { Failure } from "../ui/Failure/Failure";
import { plural } from "../ui/format";
import { Scroll } from "../ui/Scroll/Scroll";
import { safeText } from "../ui/safeText";
import css from "./Dialogs.module.css";
import { restoredFiles } from "./rewind";

interface Props {
  runId: string;
  to: string;
  onClose: () => void;
  onStarted: (runId: string) => void;
}

/** Shows what a rewind keeps, runs again and restores, before it is done. */
export function RewindDialog({ runId, to, onClose, onStarted }: Props) {
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const [current, setCurrent] = useState(false);
  const path = { run_id: runId };
  const fresh = { staleTime: 0, gcTime: 0 };
  const plan = useApi("GET /api/runs/{run_id}/rewind", { path, query: { step: to } }, fresh);
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
      {plan.data && (
        <div className={css.columns}>
          <Paths title="Kept" steps={plan.data.kept} />
          <Paths title="Run again" steps={plan.data.again} />
        </div>
      )}
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

function Paths({ title, steps }: { title: string; steps: RewoundSteps }) {
  const hidden = steps.count - steps.paths.length;
  return (
    <section className={css.part}>
      <h3>
        {title}: {plural(steps.count, "step")}
      </h3>
      <Scroll className={css.paths}>
        <ol>
          {steps.paths.map((path) => (
            <li key={path}>
              <code>{safeText(path)}</code>
            </li>
          ))}
        </ol>
        {hidden > 0 && <p className="quiet">and {hidden} more</p>}
      </Scroll>
    </section>
  );
}
