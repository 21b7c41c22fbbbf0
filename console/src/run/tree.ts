/** The steps of a run as a tree: loops have rounds, parallels have branches, calls have steps. */
import type { Round } from "../ui/Tally/Tally";
import { branchOf, containerOf, frameOf, nameOf, roundOf } from "./paths";
import { endOf, isOpen, type Step } from "./steps";

export interface TreeItem {
  path: string;
  /** What a list shows: a step's name, `round 3`, a branch's name. */
  label: string;
  kind: "step" | "round" | "branch";
  step: Step | null;
  round: number | null;
  children: TreeItem[];
}

/** Return the items of the outermost frame, each with what is inside it. */
export function treeOf(steps: readonly Step[]): TreeItem[] {
  const roots: TreeItem[] = [];
  const known = new Map<string, TreeItem>();
  const put = (item: TreeItem, frame: string): TreeItem => {
    (frame ? itemOf(frame).children : roots).push(item);
    known.set(item.path, item);
    return item;
  };
  const itemOf = (path: string): TreeItem => {
    const found = known.get(path);
    if (found) return found;
    const container = containerOf(path);
    if (container === path) return put(newItem(path, "step"), frameOf(path));
    const kind = roundOf(path) === null ? "branch" : "round";
    return put(newItem(path, kind), container);
  };
  for (const step of steps) {
    const known = itemOf(step.path);
    known.step = step;
  }
  return roots;
}

function newItem(path: string, kind: TreeItem["kind"]): TreeItem {
  const round = kind === "round" ? roundOf(path) : null;
  const label =
    kind === "round" ? `round ${round}` : kind === "branch" ? (branchOf(path) ?? "") : nameOf(path);
  return { path, label, kind, step: null, round, children: [] };
}

/** All steps inside an item that have no steps inside. */
export function leavesOf(item: TreeItem): Step[] {
  if (!item.children.length) return item.step ? [item.step] : [];
  return item.children.flatMap(leavesOf);
}

export function stateOf(item: TreeItem): string {
  if (item.step) return item.step.state;
  const inside = item.children.map(stateOf);
  if (inside.includes("running")) return "running";
  if (inside.includes("waiting")) return "waiting";
  return inside.at(-1) === "failed" ? "failed" : "succeeded";
}

export interface Totals {
  startedAt: number;
  endedAt: number;
  costUsd: number | null;
  insertions: number;
  deletions: number;
  hasChanges: boolean;
}

/** What an item took, cost and changed, with all that is inside it. */
export function totalsOf(item: TreeItem, now: number): Totals {
  const leaves = leavesOf(item);
  const all = item.step ? [item.step, ...leaves] : leaves;
  const priced = leaves.filter((step) => step.costUsd !== null);
  const changed = leaves.filter((step) => step.files);
  const sum = (of: (step: Step) => number | null) =>
    changed.reduce((total, step) => total + (of(step) ?? 0), 0);
  return {
    startedAt: Math.min(...all.map((step) => step.startedAt)),
    endedAt: Math.max(...all.map((step) => endOf(step, now))),
    costUsd: priced.length ? priced.reduce((total, step) => total + (step.costUsd ?? 0), 0) : null,
    insertions: sum((step) => step.insertions),
    deletions: sum((step) => step.deletions),
    hasChanges: changed.length > 0,
  };
}

/** How a round ended, for the tally. */
export function outcomeOf(round: TreeItem): Round {
  const leaves = leavesOf(round);
  if (leaves.some(isOpen)) return "running";
  if (leaves.at(-1)?.state === "failed") return "failed";
  return leaves.some((step) => step.handle === "not_met") ? "not-met" : "met";
}

/** The rounds of a loop; empty for anything else. */
export function roundsOf(item: TreeItem): TreeItem[] {
  return item.children.filter((child) => child.kind === "round");
}

export function hasFailed(item: TreeItem): boolean {
  return item.step?.state === "failed" || item.children.some(hasFailed);
}
