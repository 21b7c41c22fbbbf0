import { Link } from "wouter";
import type { RunDetail } from "../api/generated";
import { Button } from "../ui/Button/Button";
import { duration, money, shortId, tokens } from "../ui/format";
import { Menu, type MenuItem } from "../ui/Menu/Menu";
import { StateMark } from "../ui/StateMark/StateMark";
import { safeText } from "../ui/safeText";
import { useNow } from "../ui/useNow";
import css from "./Header.module.css";
import { causeText } from "./why";

interface Props {
  run: RunDetail;
  isLive: boolean;
  isStopping: boolean;
  isAsking: boolean;
  onStop: () => void;
  items: MenuItem[];
}

/** Which run this is, how it stands, how long it took, what it cost, and what started it. */
export function Header({ run, isLive, isStopping, isAsking, onStop, items }: Props) {
  const state = isAsking ? "asking" : run.status;
  const used = run.tokens.input + run.tokens.output;
  return (
    <header className={css.header}>
      <h2 className={css.name}>
        <Link href={`/w/${encodeURIComponent(run.workflowId)}`}>{safeText(run.workflowName)}</Link>{" "}
        <code title={run.runId}>{shortId(run.runId)}</code>
      </h2>
      <span role="status" aria-label="Run state">
        {isLive && isStopping ? (
          <StateMark state="cancelled" word="stopping…" />
        ) : (
          <StateMark state={state} />
        )}
      </span>
      <span className="number" title="Duration">
        {isLive ? <Elapsed since={run.startedAt} /> : duration(run.durationMs)}
      </span>
      <span className="number" title="Cost, and what the run may cost">
        {money(run.costUsd, run.costIsComplete)}
        <Cap run={run} />
      </span>
      {used > 0 && (
        <span className="number quiet" title={`${run.tokens.input} in, ${run.tokens.output} out`}>
          {tokens(used)} tokens
        </span>
      )}
      <span className={`${css.cause} quiet`}>{safeText(causeText(run.cause))}</span>
      {run.untrusted.length > 0 && (
        <span title={run.untrusted.join(", ")}>
          <StateMark state="outside" />
        </span>
      )}
      <span className={css.actions}>
        {isLive && (
          <Button onClick={onStop} disabled={isStopping}>
            Stop
          </Button>
        )}
        <Menu label="More actions" items={items}>
          ⋯
        </Menu>
      </span>
    </header>
  );
}

function Elapsed({ since }: { since: number }) {
  return <>{duration(Math.max(0, Math.floor((useNow() - since) / 1_000) * 1_000))}</>;
}

function Cap({ run }: { run: RunDetail }) {
  const cap = (run as RunDetail & { maxCostUsd?: number | null }).maxCostUsd;
  return <span className="quiet">/{cap ? money(cap) : "∞"}</span>;
}
