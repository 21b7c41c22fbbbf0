import { Link } from "wouter";
import { useApi } from "../../api/query";
import { approvalAddress } from "../../approval/address";
import { ago, shortId } from "../../ui/format";
import { safeText } from "../../ui/safeText";
import { useNow } from "../../ui/useNow";
import css from "./Home.module.css";

/** The questions that wait for a person, above everything else. */
export function Asked() {
  const approvals = useApi("GET /api/approvals", {}, { refetchInterval: 5_000 });
  const triggers = useApi("GET /api/triggers");
  const now = useNow();
  const waiting = (approvals.data?.approvals ?? []).filter((each) => each.state === "waiting");
  if (waiting.length === 0) return null;
  return (
    <section aria-label="Waits for you" className={css.asks}>
      {waiting.map((each) => (
        <div key={each.id} className={css.ask}>
          <span className={css.asked}>
            <span aria-hidden="true">▲ </span>
            {safeText(each.title)}
            <span className="quiet">
              {each.runId && `, run ${shortId(each.runId)}`}
              {each.expiresAt && `, expires ${ago(each.expiresAt, now)}`}
            </span>
          </span>
          <Link
            href={approvalAddress(each, triggers.data?.triggers ?? [])}
            className={css.review}
            aria-label={`Review: ${safeText(each.title)}`}
          >
            Review
          </Link>
        </div>
      ))}
    </section>
  );
}
