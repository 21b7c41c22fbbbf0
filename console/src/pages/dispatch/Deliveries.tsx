import { Link } from "wouter";
import type { TriggerView } from "../../api/generated";
import { useApi } from "../../api/query";
import { Empty } from "../../ui/Empty/Empty";
import { Failure } from "../../ui/Failure/Failure";
import { dateTime, shortId } from "../../ui/format";
import { Panel } from "../../ui/Panel/Panel";
import { Cell, Line, Row, Rows } from "../../ui/Rows/Rows";
import { StateMark } from "../../ui/StateMark/StateMark";
import { safeText } from "../../ui/safeText";

const STATES = { queued: "succeeded", ignored: "cancelled", refused: "failed" };

/** What came to a trigger, and what became of it. */
export function Deliveries({ trigger }: { trigger: TriggerView }) {
  const read = useApi(
    "GET /api/triggers/{trigger_id}/deliveries",
    { path: { trigger_id: trigger.id }, query: { limit: 50 } },
    { refetchInterval: 5_000 },
  );
  const list = read.data?.deliveries ?? [];
  return (
    <Panel title="Deliveries">
      {read.error && !read.data && <Failure error={read.error} />}
      {read.data && list.length === 0 && <Empty>Nothing has come yet.</Empty>}
      {list.length > 0 && (
        <Rows
          label="Deliveries"
          columns="minmax(130px, auto) minmax(140px, auto) minmax(0, 1fr) auto auto"
        >
          {list.map((each) => (
            <Row
              key={`${each.at}${each.correlationId}`}
              name={`${each.verdict} ${each.status ?? ""} ${dateTime(each.at)}`}
            >
              <Line>
                <Cell grow>
                  <StateMark
                    state={STATES[each.verdict]}
                    word={`${each.status ?? ""} ${each.verdict}`}
                  />
                  {each.count > 1 && <span className="quiet"> {each.count} times</span>}
                </Cell>
                <Cell>
                  <span className="number quiet">{dateTime(each.at)}</span>
                </Cell>
              </Line>
              <Line>
                <Cell wrap grow>
                  {safeText([each.reason, each.detail].filter(Boolean).join(": "))}
                </Cell>
                <Cell>
                  {each.runId && <Link href={`/r/${each.runId}`}>run {shortId(each.runId)}</Link>}
                </Cell>
                <Cell end>
                  {each.correlationId && (
                    <Link href={`/audit?correlationId=${encodeURIComponent(each.correlationId)}`}>
                      audit
                    </Link>
                  )}
                </Cell>
              </Line>
            </Row>
          ))}
        </Rows>
      )}
    </Panel>
  );
}
