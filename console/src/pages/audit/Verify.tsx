import { useState } from "react";
import { call } from "../../api/client";
import type { Verification } from "../../api/generated";
import { Button } from "../../ui/Button/Button";
import { clock, plural } from "../../ui/format";
import { StateMark } from "../../ui/StateMark/StateMark";
import { complain } from "../../ui/Toast/toast";
import css from "./Audit.module.css";

/** Reads the whole log and says whether every entry is as it was written. */
export function Verify() {
  const [result, setResult] = useState<Verification & { at: number }>();
  const [busy, setBusy] = useState(false);
  const verify = () => {
    setBusy(true);
    call("GET /api/audit/verify")
      .then((found) => setResult({ ...found, at: Date.now() }))
      .catch(complain)
      .finally(() => setBusy(false));
  };
  return (
    <div className={css.chain}>
      <span role="status" aria-label="Chain">
        {result &&
          (result.intact ? (
            <StateMark
              state="succeeded"
              word={`${plural(result.entries, "entry", "entries")} verified at ${clock(result.at)}`}
            />
          ) : (
            <StateMark
              state="failed"
              word={
                result.flaw
                  ? `${result.flaw.file}, line ${result.flaw.line}: ${result.flaw.why}`
                  : "not intact"
              }
            />
          ))}
      </span>
      <Button disabled={busy} onClick={verify}>
        {busy ? "Verifying…" : "Verify"}
      </Button>
    </div>
  );
}
