import { Link } from "wouter";
import type { Worker } from "../../api/generated";
import { useApi } from "../../api/query";
import { Page } from "../../app/shell/Page";
import { Empty } from "../../ui/Empty/Empty";
import { Failure } from "../../ui/Failure/Failure";
import { ago, dateTime, plural } from "../../ui/format";
import { Panel } from "../../ui/Panel/Panel";
import { Cell, Line, Row, Rows } from "../../ui/Rows/Rows";
import { StateMark } from "../../ui/StateMark/StateMark";
import { safeText } from "../../ui/safeText";
import { useNow } from "../../ui/useNow";
import { hasOneProcess, lookOfWorker, sorted, stateOf } from "./states";

/** The processes that drive runs. Heartbeats are not told by the stream, so the list is read again. */
export default function Workers() {
  const read = useApi("GET /api/workers", {}, { refetchInterval: 5_000 });
  const queue = useApi("GET /api/triggers/queue", {}, { refetchInterval: 5_000 });
  const now = useNow();
  const workers = sorted(read.data?.workers ?? []);
  const held = queue.data?.held ?? "";
  return (
    <Page crumbs={["Workers"]}>
      {read.error && !read.data && <Failure error={read.error} retry={() => void read.refetch()} />}
      <Panel
        title={read.data ? plural(workers.length, "process", "processes") : "Workers"}
        side={<Link href="/queue">{plural(queue.data?.size ?? 0, "run waits", "runs wait")}</Link>}
      >
        {held && (
          <p>
            <StateMark state="waiting" word="held" /> No run is started: {safeText(held)}
          </p>
        )}
        {workers.length > 0 && (
          <Rows
            label="Workers"
            columns="minmax(90px, auto) minmax(150px, auto) minmax(150px, auto) minmax(120px, 220px) minmax(90px, auto) minmax(0, 1fr)"
          >
            {workers.map((worker) => (
              <Process key={worker.id} worker={worker} held={held} now={now} />
            ))}
          </Rows>
        )}
        {read.data && hasOneProcess(workers) && (
          <Empty>
            One process drives all runs, which is enough for most people.{" "}
            <code>infloop worker</code> adds another, on this machine or on others that share a
            database.
          </Empty>
        )}
      </Panel>
    </Page>
  );
}

function Process({ worker, held, now }: { worker: Worker; held: string; now: number }) {
  const state = stateOf(worker, held);
  const look = lookOfWorker(state);
  return (
    <Row name={`${worker.kind} ${worker.id}, ${look.word}`}>
      <Line>
        <Cell>
          <StateMark state={state} look={look} />
        </Cell>
        <Cell grow>
          {worker.kind} <code className="quiet">{worker.id}</code>
        </Cell>
      </Line>
      <Line>
        <Cell title={`started ${dateTime(worker.startedAt)}`}>
          {safeText(worker.host)} <span className="number quiet">pid {worker.pid}</span>
        </Cell>
        <Cell grow>
          <Load worker={worker} />
        </Cell>
      </Line>
      <Line>
        <Cell title={dateTime(worker.heartbeatAt)}>
          <span className="number quiet">heard {ago(worker.heartbeatAt, now)}</span>
        </Cell>
        <Cell wrap grow>
          <code>{safeText(worker.labels.join(" "))}</code>
        </Cell>
      </Line>
    </Row>
  );
}

/** How many runs it drives of how many it takes. */
function Load({ worker: { liveRuns, capacity } }: { worker: Worker }) {
  if (capacity === 0) {
    return <span className="quiet">{liveRuns ? plural(liveRuns, "run") : "takes no runs"}</span>;
  }
  return (
    <>
      <span className="number">
        {liveRuns}/{capacity}
      </span>{" "}
      runs
    </>
  );
}
