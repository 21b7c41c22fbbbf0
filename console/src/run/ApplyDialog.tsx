import { useMemo, useState } from "react";
import { ApiFailure, call } from "../api/client";
import type { ApplyAnswer } from "../api/generated";
import { useApi } from "../api/query";
import { Counts } from "../diff/FileList";
import { changedFiles, countsOf } from "../diff/files";
import { Button } from "../ui/Button/Button";
import { Dialog } from "../ui/Dialog/Dialog";
import { Failure } from "../ui/Failure/Failure";
import { Field } from "../ui/Field/Field";
import { plural } from "../ui/format";
import { safeText } from "../ui/safeText";
import css from "./Dialogs.module.css";

type Result = ApplyAnswer["result"];

/** Applies what agents changed in their worktrees; protected files are shown first, each to allow. */
export function ApplyDialog({ runId, onClose }: { runId: string; onClose: () => void }) {
  const path = { run_id: runId };
  const changes = useApi("GET /api/runs/{run_id}/changes", { path, query: { step: "" } });
  const files = useMemo(() => (changes.data ? changedFiles(changes.data) : []), [changes.data]);
  const guarded = files.filter((file) => file.protectedBy);
  const [allowed, setAllowed] = useState<readonly string[]>([]);
  const [branch, setBranch] = useState("");
  const [result, setResult] = useState<Result | null>(null);
  const [error, setError] = useState<unknown>(null);
  const needsToken = error instanceof ApiFailure && error.code === "token-needed";
  const isDone = result?.outcome === "applied";
  const apply = async () => {
    setError(null);
    try {
      const body = { allow: allowed, branch: branch || null };
      setResult((await call("POST /api/runs/{run_id}/apply", { path, body })).result);
    } catch (failure) {
      setError(failure);
    }
  };
  return (
    <Dialog
      wide
      title="Apply changes"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>{isDone ? "Close" : "Cancel"}</Button>
          {!isDone && !needsToken && (
            <Button look="primary" disabled={!files.length} onClick={() => void apply()}>
              Apply {plural(files.length, "file")}
            </Button>
          )}
        </>
      }
    >
      {changes.error && <Failure error={changes.error} />}
      {error !== null && !needsToken && <Failure error={error} />}
      {needsToken && (
        <div role="alert">
          <p className={css.lead}>
            This server has no token, so it applies nothing: an agent may be able to reach it. Do it
            on the command line:
          </p>
          <pre className={css.command}>infloop apply {safeText(runId)}</pre>
        </div>
      )}
      {result && <Outcome result={result} />}
      {guarded.length > 0 && (
        <section className={css.part}>
          <h3>▲ Protected: look at these files first. Each is applied only if you allow it.</h3>
          {guarded.map((file) => (
            <label key={file.key} className={css.choice}>
              <input
                type="checkbox"
                checked={allowed.includes(file.path)}
                onChange={(event) =>
                  setAllowed(
                    event.target.checked
                      ? [...allowed, file.path]
                      : allowed.filter((each) => each !== file.path),
                  )
                }
              />
              <span>
                <code>{safeText(file.path)}</code> {safeText(file.protectedBy)}
              </span>
            </label>
          ))}
        </section>
      )}
      <section className={css.part}>
        <h3>
          {plural(files.length, "file")} <Counts {...countsOf(files)} />
        </h3>
        <ul className={css.files}>
          {files.map((file) => (
            <li key={file.key}>
              <span className="quiet">{file.kind}</span> <code>{safeText(file.path)}</code>{" "}
              <Counts insertions={file.insertions} deletions={file.deletions} />
            </li>
          ))}
        </ul>
      </section>
      <Field label="Branch" hint="Empty: the changes go to your work tree, without a commit.">
        {(control) => (
          <input {...control} value={branch} onChange={(event) => setBranch(event.target.value)} />
        )}
      </Field>
    </Dialog>
  );
}

function Outcome({ result }: { result: Result }) {
  if (result.outcome === "applied") {
    const where = result.branch ? `branch ${result.branch}` : result.repository;
    return (
      <p role="status" className={css.lead}>
        ✓ Applied {plural(result.files.length, "file")} to {safeText(where)}.
      </p>
    );
  }
  const [text, lines] =
    result.outcome === "uncommitted"
      ? [
          "You have uncommitted changes in the same files. Commit or stash them first:",
          result.paths,
        ]
      : result.outcome === "protected"
        ? ["These files are protected and were not allowed:", Object.keys(result.paths)]
        : result.outcome === "secrets"
          ? ["The leak guard found secrets in these files:", Object.keys(result.paths)]
          : ["The changes conflict with yours:", result.lines];
  return (
    <div role="alert" className={css.part}>
      <p>Nothing was applied. {text}</p>
      <ul className={css.files}>
        {lines.map((line) => (
          <li key={line}>
            <code>{safeText(line)}</code>
          </li>
        ))}
      </ul>
    </div>
  );
}
