import { useState } from "react";
import type { Approval } from "../../api/generated";
import { useApi } from "../../api/query";
import { Choice } from "../../ui/Filters/Filters";
import { dateTime } from "../../ui/format";
import { SplitItem } from "../../ui/Split/Split";
import { safeText } from "../../ui/safeText";
import css from "./Approvals.module.css";

const STATES = ["allowed", "denied", "expired", "withdrawn"] as const;

/** What became of earlier questions; read when somebody opens it. */
export function Earlier({ shown }: { shown: string }) {
  const [open, setOpen] = useState(false);
  const [state, setState] = useState<string>("allowed");
  const earlier = useApi("GET /api/approvals", { query: { state } }, { enabled: open });
  const list = earlier.data?.approvals ?? [];
  return (
    <details className={css.earlier} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Earlier questions</summary>
      <Choice
        label="Answer"
        value={state}
        onChoose={setState}
        options={STATES.map((each): [string, string] => [each, each])}
      />
      {earlier.data && list.length === 0 && <p className="quiet">None.</p>}
      {list.map((each) => (
        <SplitItem
          key={each.id}
          href={`/approvals/${encodeURIComponent(each.id)}`}
          isShown={each.id === shown}
          title={safeText(each.title)}
          detail={account(each)}
        />
      ))}
    </details>
  );
}

/** Return what became of a question, in a line. */
export function account(approval: Approval): string {
  const by = approval.answeredBy ? ` by ${approval.answeredBy.kind}` : "";
  const at = approval.answeredAt ? `, ${dateTime(approval.answeredAt)}` : "";
  const note = approval.note ? `: ${safeText(approval.note)}` : "";
  return `${approval.state}${by}${at}${note}`;
}
