import { useState } from "react";
import { useLocation } from "wouter";
import { ApiFailure, call } from "../../api/client";
import type { Approval } from "../../api/generated";
import { refresh } from "../../api/query";
import { Button } from "../../ui/Button/Button";
import { Failure } from "../../ui/Failure/Failure";
import { Field } from "../../ui/Field/Field";
import css from "./Approvals.module.css";
import { Commands } from "./Commands";

/** A run whose money is spent: give it more, or end it. */
export function BudgetAnswer({ approval }: { approval: Approval }) {
  const [, go] = useLocation();
  const [limit, setLimit] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const usd = Number(limit);
  const path = { run_id: approval.runId ?? "" };
  const send = (asked: Promise<unknown>) => {
    setBusy(true);
    setError(null);
    asked
      .then(() => {
        refresh("GET /api/approvals", "GET /api/runs");
        go(`/r/${path.run_id}`);
      })
      .catch(setError)
      .finally(() => setBusy(false));
  };
  if (error instanceof ApiFailure && error.code === "token-needed") {
    const name = path.run_id.slice(0, 8);
    return (
      <Commands
        commands={[
          `infloop resume ${name} --max-cost-usd ${limit || "USD"}`,
          `infloop cancel ${name}`,
        ]}
      />
    );
  }
  return (
    <div className={css.answer}>
      {error !== null && <Failure error={error} />}
      <div className={css.reason}>
        <Field
          label="New limit in USD"
          hint="What the run may cost in all, what it has spent included."
        >
          {(control) => (
            <input
              {...control}
              type="number"
              min="0"
              step="any"
              value={limit}
              onChange={(event) => setLimit(event.target.value)}
            />
          )}
        </Field>
      </div>
      <Button
        disabled={busy}
        onClick={() => send(call("POST /api/runs/{run_id}/cancel", { path }))}
      >
        Stop
      </Button>
      <Button
        look="primary"
        disabled={busy || !(usd > 0)}
        onClick={() =>
          send(call("POST /api/runs/{run_id}/resume", { path, body: { maxCostUsd: usd } }))
        }
      >
        Resume
      </Button>
    </div>
  );
}
