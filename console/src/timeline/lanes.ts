/** The lanes of a timeline: one for the run, one for each round and branch, folded when many. */
import { isHidden, isMany } from "../run/outline";
import { endOf, type Step } from "../run/steps";
import { outcomeOf, stateOf, type TreeItem, totalsOf } from "../run/tree";

export interface Bar {
  path: string;
  label: string;
  from: number;
  to: number;
  state: string;
  /** A span around what has lanes of its own. */
  isSpan: boolean;
  /** Until when it waits. */
  waitUntil: number | null;
}

export interface Lane {
  key: string;
  /** What a click on the lane's name shows; empty for the run. */
  path: string;
  label: string;
  depth: number;
  bars: Bar[];
  /** The loop whose rounds are folded into this lane. */
  folds?: string;
}

/** Return the lanes from top to bottom. `unfolded` are loops of which every round is shown. */
export function lanesOf(
  items: readonly TreeItem[],
  now: number,
  unfolded: ReadonlySet<string>,
  selected = "",
): Lane[] {
  const lanes: Lane[] = [];
  const addLane = (path: string, label: string, depth: number, children: readonly TreeItem[]) => {
    lanes.push({ key: path, path, label, depth, bars: children.map((child) => barOf(child, now)) });
    for (const child of children) addInside(child, depth + 1);
  };
  const addInside = (item: TreeItem, depth: number) => {
    const frames = item.children.filter((child) => child.kind !== "step");
    const inside = item.children.filter((child) => child.kind === "step");
    if (inside.length) addLane(item.path, item.label, depth, inside);
    const isFolded = isMany(frames) && !unfolded.has(item.path);
    let hidden: TreeItem[] = [];
    const flush = () => {
      if (hidden.length) lanes.push(foldLane(item.path, hidden, depth, now));
      hidden = [];
    };
    frames.forEach((frame, at) => {
      if (isFolded && isHidden(frame, at, frames.length, selected)) {
        hidden.push(frame);
        return;
      }
      flush();
      const label = frame.kind === "round" ? `r${frame.round}` : frame.label;
      addLane(frame.path, label, depth, frame.children);
    });
    flush();
  };
  addLane("", "run", 0, items);
  return lanes;
}

function foldLane(path: string, rounds: TreeItem[], depth: number, now: number): Lane {
  const label = `r${rounds[0]?.round}–${rounds.at(-1)?.round}`;
  const bars = rounds.map((round) => ({ ...barOf(round, now), isSpan: false }));
  return { key: `${path} ${label}`, path, label, depth, bars, folds: path };
}

function barOf(item: TreeItem, now: number): Bar {
  const totals = totalsOf(item, now);
  const state = item.kind === "round" && outcomeOf(item) === "failed" ? "failed" : stateOf(item);
  return {
    path: item.path,
    label: item.kind === "round" ? `r${item.round}` : item.label,
    from: totals.startedAt,
    to: totals.endedAt,
    state,
    isSpan: item.children.length > 0,
    waitUntil: item.step?.waitUntil ?? null,
  };
}

/** The time that a run's steps take up. */
export function spanOf(steps: readonly Step[], now: number): [number, number] {
  let from = Number.POSITIVE_INFINITY;
  let to = 0;
  for (const step of steps) {
    from = Math.min(from, step.startedAt);
    to = Math.max(to, endOf(step, now));
  }
  return steps.length ? [from, Math.max(to, from + 1)] : [now, now + 1];
}

const ROUND_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5,
  36e5, 72e5, 216e5, 864e5,
];

/** Times at which an axis has a tick: about one every `room` pixels. */
export function ticksOf(length: number, width: number, room = 90): number[] {
  const wanted = (length * room) / Math.max(1, width);
  const step = ROUND_MS.find((each) => each >= wanted) ?? Math.ceil(wanted / 864e5) * 864e5;
  const count = Math.floor(length / step);
  return Array.from({ length: count + 1 }, (_, at) => at * step);
}
