/** How each node of a run's workflow did, for the graph: one visit of each, the one to look at. */
import type { NodeState } from "../canvas/graphContext";
import { duration, money } from "../ui/format";
import { containerOf, frameOf, isWithin } from "./paths";
import { isOpen, type Step } from "./steps";
import { outcomeOf, roundsOf, type TreeItem } from "./tree";

/** Return the visit of each node: in the chosen round, else what is live, else failed, else last. */
export function visits(steps: readonly Step[], selected: string): Map<string, Step> {
  const chosen = new Map<string, Step>();
  const frames = framesOf(selected);
  for (const step of steps) {
    const known = chosen.get(step.nodeId);
    if (!known || rank(step, frames, selected) >= rank(known, frames, selected)) {
      chosen.set(step.nodeId, step);
    }
  }
  return chosen;
}

export function nodeStates(
  steps: readonly Step[],
  tree: readonly TreeItem[],
  selected: string,
): Map<string, NodeState> {
  const items = new Map<string, TreeItem>();
  const note = (item: TreeItem) => {
    if (item.step) items.set(item.path, item);
    item.children.forEach(note);
  };
  tree.forEach(note);
  const states = new Map<string, NodeState>();
  const chosen = visits(steps, selected);
  for (const [id, step] of chosen) {
    const item = items.get(step.path);
    const rounds = item ? roundsOf(item).map(outcomeOf) : [];
    const took = step.durationMs === null ? "" : duration(step.durationMs);
    const cost = step.costUsd === null ? "" : money(step.costUsd);
    states.set(id, {
      state: step.state,
      detail: [took, cost].filter(Boolean).join(" "),
      ...(rounds.length ? { rounds, round: shownRound(step.path, selected, chosen) } : {}),
    });
  }
  return states;
}

/** The round of a loop that its nodes show: the selected one, else that of what was chosen. */
function shownRound(loop: string, selected: string, chosen: ReadonlyMap<string, Step>): number {
  const inside = [selected, ...[...chosen.values()].map((step) => step.path)];
  const within = inside.find((path) => path.startsWith(`${loop}[`)) ?? "";
  return Number.parseInt(within.slice(loop.length + 1), 10) || 1;
}

/** The rounds and branches around a path, and the path itself if it is one. */
function framesOf(path: string): string[] {
  const found: string[] = [];
  let frame = containerOf(path) === path ? frameOf(path) : path;
  while (frame) {
    found.push(frame);
    frame = frameOf(containerOf(frame));
  }
  return found;
}

function rank(step: Step, frames: readonly string[], selected: string): number {
  if (step.path === selected) return 4;
  if (frames.some((frame) => isWithin(step.path, frame) && step.path !== frame)) return 3;
  if (isOpen(step)) return 2;
  return step.state === "failed" ? 1 : 0;
}
