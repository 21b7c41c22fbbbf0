import { useEffect, useMemo, useState } from "react";
import type { Step } from "../run/steps";
import type { TreeItem } from "../run/tree";
import { duration } from "../ui/format";
import { Scroll } from "../ui/Scroll/Scroll";
import { safeText } from "../ui/safeText";
import { type Bar, type Lane, lanesOf, spanOf, ticksOf } from "./lanes";
import css from "./Timeline.module.css";
import { useWidth } from "./useWidth";

interface Props {
  steps: readonly Step[];
  tree: readonly TreeItem[];
  now: number;
  selected: string;
  onSelect: (path: string) => void;
}

const LANE = 22;
const AXIS = 18;
const GUTTER = 88;
const INDENT = 8;
const RIGHT = 12;
const TICK_WIDTH = 40;
const LETTER = 6.6;

/** When each step ran: one lane for each round and branch. Waits are hatched. */
export function Timeline({ steps, tree, now, selected, onSelect }: Props) {
  const [box, width] = useWidth();
  const [unfolded, setUnfolded] = useState<ReadonlySet<string>>(new Set());
  const lanes = useMemo(
    () => lanesOf(tree, now, unfolded, selected),
    [tree, now, unfolded, selected],
  );
  // Keep the lane that is chosen in view, or else the newest one.
  const chosen = lanes.findIndex((lane) => lane.bars.some((bar) => bar.path === selected));
  const last = lanes.findLastIndex((lane) => lane.bars.some((bar) => bar.state === "running"));
  const wanted = selected ? chosen : last;
  useEffect(() => {
    const element = box.current;
    if (!element || wanted < 0) return;
    const top = AXIS + wanted * LANE;
    if (top < element.scrollTop) element.scrollTop = top - AXIS;
    const end = top + LANE - element.clientHeight;
    if (end > element.scrollTop) element.scrollTop = end + LANE / 2;
  }, [wanted, box]);
  const [from, to] = spanOf(steps, now);
  const room = Math.max(60, width - GUTTER - RIGHT);
  const x = (time: number) => GUTTER + ((time - from) / (to - from)) * room;
  const height = AXIS + lanes.length * LANE;
  return (
    <Scroll ref={box} className={css.box}>
      <svg width={width} height={height} className={css.svg} role="img" aria-label="Timeline">
        <defs>
          <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse">
            <path d="M-1 1l2-2M0 6l6-6M5 7l2-2" className={css.hatch} />
          </pattern>
        </defs>
        {ticksOf(to - from, room).map((tick) => (
          <g key={tick} transform={`translate(${x(from + tick)} 0)`}>
            <line y1={AXIS} y2={height} className={css.grid} />
            <text y={12} className={css.tick} textAnchor={textAnchor(x(from + tick), width)}>
              {duration(tick)}
            </text>
          </g>
        ))}
        {lanes.map((lane, at) => (
          <LaneRow
            key={lane.key}
            lane={lane}
            y={AXIS + at * LANE}
            x={x}
            selected={selected}
            onSelect={onSelect}
            onUnfold={(path) => setUnfolded(new Set([...unfolded, path]))}
          />
        ))}
      </svg>
    </Scroll>
  );
}

interface LaneProps {
  lane: Lane;
  y: number;
  x: (time: number) => number;
  selected: string;
  onSelect: (path: string) => void;
  onUnfold: (path: string) => void;
}

function LaneRow({ lane, y, x, selected, onSelect, onUnfold }: LaneProps) {
  const choose = () => (lane.folds ? onUnfold(lane.folds) : onSelect(lane.path));
  const indent = Math.min(lane.depth, 4) * INDENT;
  const letters = Math.floor((GUTTER - 12 - indent) / LETTER);
  return (
    <g transform={`translate(0 ${y})`} data-lane={lane.key}>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the list of steps takes the keys */}
      <text x={8 + indent} y={15} className={css.name} onClick={choose}>
        <title>{safeText(lane.path)}</title>
        {cut(lane.folds ? `⋯${lane.label}` : lane.label, letters)}
      </text>
      {visible(lane.bars, x).map((bar) => (
        <BarShape
          key={bar.path}
          bar={bar}
          x={x}
          isSelected={bar.path === selected}
          onSelect={onSelect}
        />
      ))}
    </g>
  );
}

interface BarProps {
  bar: Bar;
  x: (time: number) => number;
  isSelected: boolean;
  onSelect: (path: string) => void;
}

function BarShape({ bar, x, isSelected, onSelect }: BarProps) {
  const left = x(bar.from);
  const wide = Math.max(2, x(bar.to) - left);
  const letters = Math.floor((wide - 6) / LETTER);
  const title = `${bar.path}: ${bar.state}, ${duration(bar.to - bar.from)}`;
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the list of steps takes the keys
    <g
      className={css.bar}
      data-state={bar.state}
      data-span={bar.isSpan || undefined}
      data-selected={isSelected || undefined}
      onClick={() => onSelect(bar.path)}
    >
      <title>{safeText(title)}</title>
      <rect x={left} y={bar.isSpan ? 8 : 3} width={wide} height={bar.isSpan ? 6 : 16} />
      {bar.state === "waiting" && (
        <rect x={left} y={3} width={wide} height={16} className={css.waits} />
      )}
      {!bar.isSpan && letters > 2 && (
        <text x={left + 4} y={15}>
          {cut(bar.label, letters)}
        </text>
      )}
    </g>
  );
}

/** Of bars that would lie on the same pixel, one; never a failure. */
function visible(bars: readonly Bar[], x: (time: number) => number): Bar[] {
  let last = -1;
  return bars.filter((bar) => {
    const right = Math.round(x(bar.to));
    const isShown = right > last || bar.state === "failed";
    last = Math.max(last, right);
    return isShown;
  });
}

/** The text of the last tick ends there: it would be cut off at the right border. */
function textAnchor(at: number, width: number): "start" | "end" {
  return width - at < TICK_WIDTH ? "end" : "start";
}

function cut(text: string, letters: number): string {
  const safe = safeText(text);
  return safe.length <= letters ? safe : `${safe.slice(0, Math.max(1, letters - 1))}…`;
}
