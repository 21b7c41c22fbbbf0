import { Link } from "wouter";
import type { Approval } from "../../api/generated";
import { useApi } from "../../api/query";
import { isCut } from "../../approval/whole";
import { ago, dateTime, shortId } from "../../ui/format";
import { safeText } from "../../ui/safeText";
import { useNow } from "../../ui/useNow";
import { Answer } from "./Answer";
import css from "./Approvals.module.css";
import { BudgetAnswer } from "./BudgetAnswer";
import { account } from "./Earlier";
import { Exact } from "./Exact";
import { MissedAnswer } from "./MissedAnswer";

/** One question: exactly what is asked, where it would happen, and the answer. */
export function Question({ approval }: { approval: Approval }) {
  const now = useNow();
  const waits = approval.state === "waiting";
  const cut = isCut(approval);
  return (
    <>
      <div className={css.body}>
        <h2 className={css.title}>
          {waits && <span aria-hidden="true">▲ </span>}
          {safeText(approval.title)}
        </h2>
        <p className={css.marks}>
          <span>{approval.kind}</span>
          {approval.stepPath && (
            <span>
              step <code>{safeText(approval.stepPath)}</code>
            </span>
          )}
          {approval.runId && (
            <span>
              run <Link href={`/r/${approval.runId}`}>{shortId(approval.runId)}</Link>
            </span>
          )}
          <span title={dateTime(approval.askedAt)}>asked {ago(approval.askedAt, now)}</span>
          {waits && approval.expiresAt && (
            <span title={dateTime(approval.expiresAt)}>
              expires <span className="number">{ago(approval.expiresAt, now)}</span>
            </span>
          )}
        </p>
        {approval.runId && <Surroundings runId={approval.runId} />}
        <Exact details={approval.details} />
        {cut && (
          <p className={css.cut}>
            Part of this action is not shown: it was too long to keep. It can be denied, but not
            allowed here.
          </p>
        )}
        {!waits && <p>{account(approval)}</p>}
      </div>
      {waits && approval.kind === "budget" && <BudgetAnswer approval={approval} />}
      {waits && approval.kind === "missed-schedule" && <MissedAnswer approval={approval} />}
      {waits && !approval.hint && <Answer approval={approval} isCut={cut} />}
    </>
  );
}

/** How the run is confined, and whether it has read text from outside. */
function Surroundings({ runId }: { runId: string }) {
  const path = { run_id: runId };
  const run = useApi("GET /api/runs/{run_id}", { path });
  const log = useApi("GET /api/runs/{run_id}/log", { path, query: { limit: 1, output: false } });
  const began = log.data?.events.find((each) => each.type === "run_started");
  const detail = run.data?.run;
  const outside = detail?.kind === "run" ? detail.untrusted : [];
  return (
    <p className={css.marks}>
      {detail?.kind === "run" && <span>workflow {safeText(detail.workflowName)}</span>}
      {began && "isolation" in began && <span>confined: {began.isolation}</span>}
      {began && "egress" in began && <span>egress: {began.egress}</span>}
      {outside.length > 0 && (
        <span className={css.outside} title={`From outside: ${outside.join(", ")}`}>
          ⌁ contains outside text
        </span>
      )}
    </p>
  );
}
