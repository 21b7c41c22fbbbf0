import { useState } from "react";
import { call } from "../../api/client";
import type { Approval } from "../../api/generated";
import { refresh } from "../../api/query";
import { triggerOf } from "../../approval/address";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import { say } from "../../ui/Toast/toast";
import css from "./Approvals.module.css";

/** A schedule that missed its time: make up for it with one run, or not. */
export function MissedAnswer({ approval }: { approval: Approval }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const answer = (start: boolean) => {
    setBusy(true);
    setError(null);
    call("POST /api/triggers/{trigger_id}/missed", {
      path: { trigger_id: triggerOf(approval) },
      body: { start },
    })
      .then(() => say(start ? "One run is queued." : "Nothing is made up for."))
      .catch(setError)
      .finally(() => {
        setBusy(false);
        refresh("GET /api/approvals", "GET /api/triggers", "GET /api/triggers/queue");
      });
  };
  return (
    <div className={css.answer}>
      {error !== null && <Failure error={error} />}
      <Button disabled={busy} onClick={() => answer(false)}>
        Skip
      </Button>
      <Button look="primary" disabled={busy} onClick={() => answer(true)}>
        Run now
      </Button>
    </div>
  );
}
