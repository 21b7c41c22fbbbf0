import { Link } from "wouter";
import type { RunPage } from "../../api/generated";
import { dateTime } from "../../ui/format";
import { safeText } from "../../ui/safeText";
import css from "./Runs.module.css";

/** What did not become a run: held in the queue, or refused when a trigger fired. */
export function NotRuns({ page }: { page: RunPage }) {
  const held = page.held ?? [];
  const refused = page.refused ?? [];
  if (held.length + refused.length === 0) return null;
  return (
    <section aria-label="Held and refused" className={css.aside}>
      {held.map((run) => (
        <p key={run.queueId} className={css.note}>
          <span aria-hidden="true">◷</span> <Link href="/queue">{run.workflowId}</Link> is held:{" "}
          {safeText(run.reason)}
        </p>
      ))}
      {refused.map((firing) => (
        <p
          key={`${firing.trigger}${firing.reason}${firing.firstAt}`}
          className={css.note}
          data-refused=""
        >
          <span aria-hidden="true">⊘</span> {safeText(firing.triggerName)} did not start{" "}
          {firing.workflowId}: {safeText(firing.message)}{" "}
          <span className="quiet">
            {firing.count > 1 && `${firing.count} times, last `}
            {dateTime(firing.at)}{" "}
            <Link href={`/audit?correlationId=${encodeURIComponent(firing.correlationId)}`}>
              {firing.correlationId}
            </Link>
          </span>
        </p>
      ))}
    </section>
  );
}
