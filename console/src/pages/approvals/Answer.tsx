import { useState } from "react";
import { ApiFailure, call } from "../../api/client";
import type { Approval } from "../../api/generated";
import { refresh, useApi } from "../../api/query";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import { Field } from "../../ui/Field/Field";
import { say } from "../../ui/Toast/toast";
import css from "./Approvals.module.css";
import { Commands } from "./Commands";

const SHORT = 8;

/** Allow or deny, with a reason. A caller without a token is told the command instead. */
export function Answer({ approval, isCut }: { approval: Approval; isCut: boolean }) {
  const session = useApi("GET /api/session", {}, { staleTime: 60_000 });
  const [note, setNote] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const needsToken = error instanceof ApiFailure && error.code === "token-needed";
  if (needsToken || session.data?.canAnswer === false) {
    const name = approval.id.slice(0, SHORT);
    return <Commands commands={[`infloop approve ${name}`, `infloop deny ${name}`]} />;
  }
  const answer = (decision: "allow" | "deny") => {
    setBusy(true);
    setError(null);
    call("POST /api/approvals/{approval_id}", {
      path: { approval_id: approval.id },
      body: { decision, note },
    })
      .then(() => say(decision === "allow" ? "Allowed once." : "Denied."))
      .catch(setError)
      .finally(() => {
        setBusy(false);
        refresh("GET /api/approvals", "GET /api/approvals/{approval_id}", "GET /api/runs");
      });
  };
  return (
    <div className={css.answer}>
      {error !== null && <Failure error={error} />}
      <div className={css.reason}>
        <Field label="Reason">
          {(control) => (
            <input
              {...control}
              maxLength={1000}
              value={note}
              onChange={(event) => setNote(event.target.value)}
            />
          )}
        </Field>
      </div>
      <Button disabled={busy || !session.data} onClick={() => answer("deny")}>
        Deny
      </Button>
      <Button
        look="primary"
        disabled={busy || !session.data || isCut}
        title={isCut ? "Part of the action is not shown." : undefined}
        onClick={() => answer("allow")}
      >
        Allow once
      </Button>
    </div>
  );
}
