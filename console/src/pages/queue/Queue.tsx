import { Link } from "wouter";
import { call } from "../../api/client";
import type { QueueList } from "../../api/generated";
import { queryClient, refresh, useApi } from "../../api/query";
import { Page } from "../../app/shell/Page";
import { startedBy } from "../../runlist/words";
import { Button } from "../../ui/Button/Button";
import { Empty } from "../../ui/Empty/Empty";
import { Failure } from "../../ui/Failure/Failure";
import { ago, plural, shortId } from "../../ui/format";
import { Panel } from "../../ui/Panel/Panel";
import { Cell, Line, Row, Rows } from "../../ui/Rows/Rows";
import { StateMark } from "../../ui/StateMark/StateMark";
import { safeText } from "../../ui/safeText";
import { complain } from "../../ui/Toast/toast";
import { useNow } from "../../ui/useNow";

const KEY = ["GET /api/triggers/queue", {}, {}];

/** Take an entry out: it leaves the list at once, and comes back if the server refuses. */
async function remove(queueId: string): Promise<void> {
  await queryClient.cancelQueries({ queryKey: KEY });
  const before = queryClient.getQueryData<QueueList>(KEY);
  queryClient.setQueryData<QueueList>(KEY, (list) => {
    if (!list) return list;
    const items = list.items.filter((each) => each.queueId !== queueId);
    return { ...list, items, size: items.length };
  });
  try {
    await call("DELETE /api/triggers/queue/{queue_id}", { path: { queue_id: queueId } });
  } catch (error) {
    queryClient.setQueryData(KEY, before);
    complain(error);
  }
  refresh("GET /api/triggers/queue", "GET /api/runs");
}

/** The runs that wait for their turn, in order. */
export default function Queue() {
  const queue = useApi("GET /api/triggers/queue", {}, { refetchInterval: 5_000 });
  const now = useNow();
  const items = queue.data?.items ?? [];
  return (
    <Page crumbs={["Queue"]}>
      {queue.error && !queue.data && (
        <Failure error={queue.error} retry={() => void queue.refetch()} />
      )}
      <Panel title={queue.data ? plural(items.length, "run waits", "runs wait") : "Queue"}>
        {queue.data?.held && (
          <p>
            <StateMark state="waiting" word="held" /> {safeText(queue.data.held)}
          </p>
        )}
        {queue.data && items.length === 0 && (
          <Empty>Nothing waits. What is started while other runs are busy stands here.</Empty>
        )}
        {items.length > 0 && (
          <Rows
            label="Queue"
            columns="32px minmax(160px, 280px) minmax(100px, 180px) 90px minmax(0, 1fr) auto"
          >
            {items.map((item) => (
              <Row
                key={item.queueId}
                name={`${item.workflowName} ${shortId(item.runId)}, ${item.held ? "held" : "queued"}`}
              >
                <Line>
                  <Cell>
                    <span className="number quiet">{item.position}</span>
                  </Cell>
                  <Cell grow>
                    <StateMark state={item.held ? "waiting" : "queued"} short />{" "}
                    <Link href={`/r/${item.runId}`}>{item.workflowName}</Link>{" "}
                    <code className="quiet">{shortId(item.runId)}</code>
                  </Cell>
                </Line>
                <Line>
                  <Cell>
                    <span className="quiet">{startedBy(item)}</span>
                  </Cell>
                  <Cell>
                    <span className="number quiet">{ago(item.receivedAt, now)}</span>
                  </Cell>
                  <Cell wrap grow>
                    {item.held ? `held: ${safeText(item.held)}` : safeText(item.waitsFor)}
                  </Cell>
                  <Cell end>
                    <Button
                      aria-label={`Remove ${item.workflowName} ${shortId(item.runId)}`}
                      onClick={() => void remove(item.queueId)}
                    >
                      Remove
                    </Button>
                  </Cell>
                </Line>
              </Row>
            ))}
          </Rows>
        )}
      </Panel>
    </Page>
  );
}
