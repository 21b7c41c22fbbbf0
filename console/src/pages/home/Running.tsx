import { Link, useLocation } from "wouter";
import { call } from "../../api/client";
import type { RunSummary } from "../../api/generated";
import { refresh, useApi } from "../../api/query";
import { useAsking } from "../../runlist/useAsking";
import { rowName, stateOf } from "../../runlist/words";
import { Button } from "../../ui/Button/Button";
import { Empty } from "../../ui/Empty/Empty";
import { ago, clock, duration, money, shortId } from "../../ui/format";
import { Panel } from "../../ui/Panel/Panel";
import { Cell, Line, Row, Rows } from "../../ui/Rows/Rows";
import { StateMark } from "../../ui/StateMark/StateMark";
import { safeText } from "../../ui/safeText";
import { Tally } from "../../ui/Tally/Tally";
import { complain } from "../../ui/Toast/toast";
import { useNow } from "../../ui/useNow";
import css from "./Home.module.css";
import { roundsOf } from "./rounds";

const LIVE = ["running", "stalled", "interrupted", "paused"];

/** The runs that have not ended: where each is, its last sign of life, what it has spent. */
export function Running({ recent }: { recent: RunSummary[] }) {
  const query = { limit: 50, activity: true };
  const often = { refetchInterval: 5_000 };
  const running = useApi("GET /api/runs", { query: { status: "running", ...query } }, often);
  const stalled = useApi("GET /api/runs", { query: { status: "stalled", ...query } }, often);
  const now = useNow();
  const asking = useAsking();
  const known = new Map<string, RunSummary>();
  for (const run of [
    ...recent.filter((each) => LIVE.includes(each.status)),
    ...(stalled.data?.runs ?? []),
    ...(running.data?.runs ?? []),
  ]) {
    known.set(run.runId, run);
  }
  const runs: RunSummary[] = [...known.values()].sort((a, b) => b.startedAt - a.startedAt);
  return (
    <Panel title="Running">
      {runs.length === 0 ? (
        <Empty>Nothing runs.</Empty>
      ) : (
        <Rows
          label="Running"
          columns="minmax(180px, auto) minmax(120px, 1fr) minmax(70px, auto) minmax(60px, auto) minmax(90px, auto) minmax(90px, auto)"
        >
          {runs.map((run) => (
            <RunningRow key={run.runId} run={run} now={now} state={stateOf(run, asking)} />
          ))}
        </Rows>
      )}
    </Panel>
  );
}

function RunningRow({ run, now, state }: { run: RunSummary; now: number; state: string }) {
  const [, go] = useLocation();
  const step = run.openSteps?.at(-1);
  const waits = run.status === "running" && run.waiting;
  const goOn = (takeOver: boolean) =>
    call("POST /api/runs/{run_id}/resume", { path: { run_id: run.runId }, body: { takeOver } })
      .then(() => {
        refresh("GET /api/runs");
        go(`/r/${run.runId}`);
      })
      .catch(complain);
  return (
    <Row name={rowName(run, state)}>
      <Line>
        <Cell grow>
          <StateMark state={waits && state === "running" ? "waiting" : state} short />{" "}
          <Link href={`/r/${run.runId}`} className={css.name}>
            {run.workflowName}
          </Link>{" "}
          <code className="quiet">{shortId(run.runId)}</code>
        </Cell>
        <Cell title={step?.path} grow>
          {waits ? (
            <>
              until {clock(waits.until)} {waits.reason && `(${safeText(waits.reason)})`}
            </>
          ) : run.status === "running" ? (
            <code>{step?.path ?? ""}</code>
          ) : (
            safeText(run.errorMessage || run.status)
          )}
        </Cell>
        <Cell end>
          <span className="number">{duration(now - run.startedAt)}</span>
        </Cell>
      </Line>
      <Line>
        <Cell>
          <Tally rounds={roundsOf(run)} />
        </Cell>
        <Cell title="Last sign of life">
          <span className="number quiet">
            {run.lastSignAt ? `sign ${ago(run.lastSignAt, now)}` : ""}
          </span>
        </Cell>
        <Cell end>
          {run.status === "stalled" ? (
            <Button onClick={() => void goOn(true)}>Take over</Button>
          ) : run.status === "interrupted" ? (
            <Button onClick={() => void goOn(false)}>Resume</Button>
          ) : (
            <span className="number">
              {money(run.costUsd, run.costIsComplete)}/
              {run.maxCostUsd ? money(run.maxCostUsd) : "∞"}
            </span>
          )}
        </Cell>
      </Line>
    </Row>
  );
}
