import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import type { Step } from "../run/steps";
import { duration, money } from "../ui/format";
import { StateMark } from "../ui/StateMark/StateMark";
import { safeText } from "../ui/safeText";
import type { Aligned } from "./align";
import css from "./Compare.module.css";

interface Props {
  rows: readonly Aligned[];
  /** The path of the first divergence. */
  first: string;
  selected: string;
  onSelect: (path: string) => void;
}

const ROW = 28;

/** The steps of both runs by path; the first divergence is marked and in view. */
export function StepTable({ rows, first, selected, onSelect }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 12,
  });
  const at = rows.findIndex((row) => row.path === selected);
  useEffect(() => {
    if (at >= 0) virtual.scrollToIndex(at, { align: "auto" });
  }, [at, virtual]);
  return (
    <div ref={box} className={css.steps}>
      <div className={css.all} style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((place) => {
          const row = rows[place.index];
          if (!row) return null;
          return (
            <div
              key={row.path}
              className={css.step}
              data-first={row.path === first || undefined}
              data-differs={row.difference ? true : undefined}
              style={{ transform: `translateY(${place.start}px)` }}
            >
              <button
                type="button"
                className={css.path}
                aria-label={`${safeText(row.path)}, ${safeText(row.difference || "the same")}`}
                aria-current={row.path === selected ? "true" : undefined}
                onClick={() => onSelect(row.path)}
              >
                {safeText(row.path)}
              </button>
              <Half step={row.a} />
              <Half step={row.b} />
              <span className={css.difference}>
                {row.path === first && <strong>first divergence: </strong>}
                {safeText(row.difference)}
              </span>
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Half({ step }: { step: Step | null }) {
  if (!step) return <span className={css.half}>–</span>;
  return (
    <span className={css.half}>
      <StateMark state={step.state} short /> {step.handle && `▸${step.handle} `}
      {duration(step.durationMs)} {step.costUsd !== null && money(step.costUsd)}
    </span>
  );
}
