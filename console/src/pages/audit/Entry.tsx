import { Link } from "wouter";
import type { AuditEntry } from "../../api/generated";
import { Button } from "../../ui/Button/Button";
import { dateTime, shortId } from "../../ui/format";
import { Cell, Line, Row } from "../../ui/Rows/Rows";
import { safeText } from "../../ui/safeText";
import css from "./Audit.module.css";

interface Props {
  entry: AuditEntry;
  onFilter: (name: "correlationId" | "event" | "run", value: string) => void;
}

/** One entry; its details open on demand. */
export function Entry({ entry, onFilter }: Props) {
  const time = dateTime(Date.parse(entry.time));
  const actor = entry.actor.name ? `${entry.actor.kind} ${entry.actor.name}` : entry.actor.kind;
  const details = entry.details ?? {};
  const count = Object.keys(details).length;
  return (
    <Row name={`${time} ${entry.event} ${actor} ${entry.outcome ?? ""}`.trim()}>
      <Line>
        <Cell>
          <span className="number quiet" title={entry.time}>
            {time}
          </span>
        </Cell>
        <Cell grow>
          <strong>{entry.event}</strong>
        </Cell>
      </Line>
      <Line>
        <Cell>{safeText(actor)}</Cell>
        <Cell title={entry.outcome}>{safeText(entry.outcome ?? "")}</Cell>
        <Cell>{entry.runId && <Link href={`/r/${entry.runId}`}>{shortId(entry.runId)}</Link>}</Cell>
        <Cell wrap grow>
          <details className={css.details}>
            <summary>
              {entry.correlationId ? <code>{entry.correlationId.slice(0, 12)}…</code> : "details"}
              {entry.workflowId && ` ${safeText(entry.workflowId)}`}
            </summary>
            {entry.correlationId && (
              <p>
                <code>{entry.correlationId}</code>{" "}
                <Button onClick={() => onFilter("correlationId", entry.correlationId ?? "")}>
                  Only this one
                </Button>
              </p>
            )}
            {count > 0 && <pre>{safeText(JSON.stringify(details, null, 2))}</pre>}
            {entry.hash && (
              <p>
                hash <code>{entry.hash}</code>
              </p>
            )}
          </details>
        </Cell>
      </Line>
    </Row>
  );
}
