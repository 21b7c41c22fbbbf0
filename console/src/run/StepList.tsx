import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useEffect, useRef } from "react";
import { duration, money, plural } from "../ui/format";
import { StateMark } from "../ui/StateMark/StateMark";
import { lookOf } from "../ui/StateMark/states";
import { safeText } from "../ui/safeText";
import { Tally } from "../ui/Tally/Tally";
import { useNarrow } from "../ui/useNarrow";
import type { Line } from "./outline";
import css from "./StepList.module.css";
import { outcomeOf, roundsOf, stateOf, type TreeItem, totalsOf } from "./tree";

interface Props {
  lines: readonly Line[];
  selected: string;
  now: number;
  onSelect: (path: string) => void;
  onToggle: (path: string, open: boolean) => void;
  onUnfold: (path: string) => void;
}

const ROW = 28;
const TOUCH_ROW = 44;

/** The steps of a run: loops with a tally, their rounds, branches; many rounds are folded. */
export function StepList({ lines, selected, now, onSelect, onToggle, onUnfold }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const row = useNarrow() ? TOUCH_ROW : ROW;
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => row,
    overscan: 20,
  });
  const at = lines.findIndex((line) => line.kind === "item" && line.item.path === selected);
  useEffect(() => {
    if (at >= 0) virtual.scrollToIndex(at, { align: "auto" });
  }, [at, virtual]);
  return (
    <section aria-label="Steps" className={css.list} ref={box}>
      <div className={css.all} style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((place) => {
          const line = lines[place.index];
          if (!line) return null;
          const style = { transform: `translateY(${place.start}px)`, height: row };
          if (line.kind === "fold") {
            return (
              <button
                key={`fold ${line.path} ${line.from}`}
                type="button"
                className={`${css.row} ${css.fold}`}
                style={{ ...style, paddingLeft: 12 + line.depth * 14 }}
                onClick={() => onUnfold(line.path)}
              >
                ⋯ {plural(line.count, "round")} ({line.from}–{line.to})
              </button>
            );
          }
          return (
            <div key={line.item.path} className={css.row} style={style}>
              <StepRow
                {...line}
                now={stateOf(line.item) === "running" ? now : 0}
                isSelected={line.item.path === selected}
                onSelect={onSelect}
                onToggle={onToggle}
              />
            </div>
          );
        })}
      </div>
    </section>
  );
}

interface RowProps {
  item: TreeItem;
  depth: number;
  isOpen: boolean;
  isSelected: boolean;
  now: number;
  onSelect: (path: string) => void;
  onToggle: (path: string, open: boolean) => void;
}

const StepRow = memo(function StepRow(props: RowProps) {
  const { item, depth, isOpen, isSelected, now, onSelect, onToggle } = props;
  const totals = totalsOf(item, now);
  const state = stateOf(item);
  const rounds = roundsOf(item);
  const word = item.kind === "round" ? outcomeOf(item).replace("-", " ") : lookOf(state).word;
  const label = safeText(item.label);
  return (
    <div
      className={css.step}
      data-selected={isSelected || undefined}
      style={{ paddingLeft: 4 + depth * 14 }}
    >
      {item.children.length > 0 ? (
        <button
          type="button"
          className={css.toggle}
          aria-label={`${isOpen ? "Close" : "Open"} ${label}`}
          aria-expanded={isOpen}
          onClick={() => onToggle(item.path, !isOpen)}
        >
          {isOpen ? "▾" : "▸"}
        </button>
      ) : (
        <span className={css.toggle} />
      )}
      <button
        type="button"
        className={css.main}
        aria-label={`${label}, ${word}`}
        aria-current={isSelected ? "true" : undefined}
        title={safeText(item.step?.error || item.path)}
        onClick={() => onSelect(item.path)}
      >
        <span aria-hidden="true">
          <StateMark state={state} short />
        </span>
        <span className={css.label}>{label}</span>
      </button>
      {rounds.length > 0 && <Tally rounds={rounds.map(outcomeOf)} shown={10} />}
      <span className={css.figures}>
        {totals.hasChanges && (
          <span className={css.changes}>
            +{totals.insertions}−{totals.deletions}
          </span>
        )}
        {totals.costUsd !== null && <span>{money(totals.costUsd)}</span>}
        <span>{duration(totals.endedAt - totals.startedAt)}</span>
      </span>
    </div>
  );
});
