import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useEffect, useRef } from "react";
import { Link } from "wouter";
import type { RunSummary } from "../../api/generated";
import { useAsking } from "../../runlist/useAsking";
import { outcome, rowName, startedBy, stateOf } from "../../runlist/words";
import { ago, dateTime, duration, money, shortId } from "../../ui/format";
import { StateMark } from "../../ui/StateMark/StateMark";
import { useNarrow } from "../../ui/useNarrow";
import { useNow } from "../../ui/useNow";
import css from "./Runs.module.css";

interface Props {
  runs: RunSummary[];
  chosen: string[];
  onChoose: (runId: string) => void;
  /** The end comes near: read more. */
  onEnd: () => void;
  isDone: boolean;
}

/** Rows of which only those in view exist. */
export function RunList({ runs, chosen, onChoose, onEnd, isDone }: Props) {
  const list = useRef<HTMLDivElement>(null);
  const now = useNow(10_000);
  const asking = useAsking();
  const tall = useNarrow() ? 56 : 29;
  // A new function would let all rows be placed again.
  const keyOf = useCallback((at: number) => runs[at]?.runId ?? at, [runs]);
  const rows = useVirtualizer({
    count: runs.length,
    getScrollElement: () => list.current,
    estimateSize: () => tall,
    overscan: 12,
    getItemKey: keyOf,
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: sizes change with the width alone
  useEffect(() => rows.measure(), [tall]);
  const items = rows.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= runs.length - 50) onEnd();
  }, [last, runs.length, onEnd]);
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keys scroll it */}
      <div ref={list} className={css.list} tabIndex={0} role="region" aria-label="Runs">
        <div
          role="table"
          aria-label="Runs"
          aria-rowcount={isDone ? runs.length : -1}
          className={css.space}
          style={{ height: rows.getTotalSize() }}
        >
          {items.map((item) => {
            const run = runs[item.index];
            return run ? (
              <RunRow
                key={item.key}
                run={run}
                state={stateOf(run, asking)}
                now={now}
                top={item.start}
                height={item.size}
                index={item.index + 1}
                isChosen={chosen.includes(run.runId)}
                onChoose={onChoose}
              />
            ) : null;
          })}
        </div>
      </div>
      <div className={css.foot}>
        <span>
          {runs.length}
          {isDone ? "" : "+"} runs
        </span>
      </div>
    </>
  );
}

interface RowProps {
  run: RunSummary;
  state: string;
  now: number;
  top: number;
  height: number;
  index: number;
  isChosen: boolean;
  onChoose: (runId: string) => void;
}

const RunRow = memo(function RunRow(props: RowProps) {
  const { run, state, now, top, height, index, isChosen, onChoose } = props;
  const why = outcome(run);
  return (
    // biome-ignore lint/a11y/useFocusableInteractive: rows are read; what can be used is inside
    <div
      role="row"
      aria-label={rowName(run, state)}
      aria-rowindex={index}
      className={css.row}
      style={{ transform: `translateY(${top}px)`, height }}
    >
      <div role="cell" className={css.cell}>
        <input
          type="checkbox"
          aria-label={`Select ${rowName(run, state)}`}
          checked={isChosen}
          onChange={() => onChoose(run.runId)}
        />
      </div>
      <div className={css.lines}>
        <div className={css.line}>
          <div role="cell" className={css.cell}>
            <StateMark state={state} short />{" "}
            <Link href={`/r/${run.runId}`} className={css.name}>
              {run.workflowName}
            </Link>{" "}
            <code className="quiet">{shortId(run.runId)}</code>
          </div>
          <div
            role="cell"
            className={`${css.cell} ${css.right} number quiet`}
            title={dateTime(run.startedAt)}
          >
            {ago(run.startedAt, now)}
          </div>
        </div>
        <div className={css.line}>
          <div role="cell" className={`${css.cell} number`}>
            {duration(run.durationMs ?? now - run.startedAt)}
          </div>
          <div role="cell" className={`${css.cell} number`}>
            {money(run.costUsd, run.costIsComplete)}
          </div>
          <div role="cell" className={`${css.cell} ${css.by} quiet`}>
            {startedBy(run)}
          </div>
          <div role="cell" className={css.cell} title={why}>
            {why}
          </div>
        </div>
      </div>
    </div>
  );
});
