import { Link } from "wouter";
import type { RunSummary } from "../../api/generated";
import { outcome, rowName } from "../../runlist/words";
import { Empty } from "../../ui/Empty/Empty";
import { ago, duration, money, shortId } from "../../ui/format";
import { Panel } from "../../ui/Panel/Panel";
import { Cell, Line, Row, Rows } from "../../ui/Rows/Rows";
import { StateMark } from "../../ui/StateMark/StateMark";
import { useNow } from "../../ui/useNow";
import css from "./Home.module.css";

const SHOWN = 8;

/** The runs that ended last, and why. */
export function JustEnded({ runs, isReady }: { runs: RunSummary[]; isReady: boolean }) {
  const now = useNow(10_000);
  const ended = runs
    .filter((run) => run.finishedAt !== null && run.status !== "paused")
    .sort((a, b) => (b.finishedAt ?? 0) - (a.finishedAt ?? 0))
    .slice(0, SHOWN);
  return (
    <Panel title="Just ended" side={<Link href="/runs">All runs</Link>}>
      {ended.length === 0 ? (
        isReady && <Empty>No run has ended yet.</Empty>
      ) : (
        <Rows
          label="Just ended"
          columns="minmax(170px, auto) minmax(70px, auto) minmax(0, 1fr) minmax(50px, auto) minmax(60px, auto)"
        >
          {ended.map((run) => (
            <Row key={run.runId} name={rowName(run)}>
              <Line>
                <Cell grow>
                  <StateMark state={run.status} short />{" "}
                  <Link href={`/r/${run.runId}`} className={css.name}>
                    {run.workflowName}
                  </Link>{" "}
                  <code className="quiet">{shortId(run.runId)}</code>
                </Cell>
                <Cell end>
                  <span className="number quiet">{ago(run.finishedAt ?? 0, now)}</span>
                </Cell>
              </Line>
              <Line>
                <Cell grow title={outcome(run)}>
                  {outcome(run)}
                </Cell>
                <Cell end>
                  <span className="number">{duration(run.durationMs)}</span>
                </Cell>
                <Cell end>
                  <span className="number">{money(run.costUsd, run.costIsComplete)}</span>
                </Cell>
              </Line>
            </Row>
          ))}
        </Rows>
      )}
    </Panel>
  );
}
