/** Two runs side by side: their steps by path, and where they first differ. */
import type { Json } from "../api/generated";
import { containerOf, frameOf } from "../run/paths";
import type { Step } from "../run/steps";

/** What a step was given and what it gave. */
export interface Exchange {
  config: { [name: string]: Json };
  outputs: { [name: string]: Json };
}

export interface Side {
  steps: readonly Step[];
  exchanges: ReadonlyMap<string, Exchange>;
}

export interface Aligned {
  path: string;
  a: Step | null;
  b: Step | null;
  /** In what they differ, in words; empty if they are the same. */
  difference: string;
}

/** Outputs that differ between equal runs. */
const VOLATILE = new Set([
  ...["durationMs", "costUsd", "tokens", "sessionId", "sessionTokens", "sessionCostUsd"],
  ...["worktreePath"],
]);

/** Return the steps of both runs in the order of the first, those of the second alone in between. */
export function align(a: Side, b: Side): Aligned[] {
  const inA = byPath(a.steps);
  const inB = byPath(b.steps);
  const containers = new Set([...framesIn(a.steps), ...framesIn(b.steps)]);
  const rows: Aligned[] = [];
  const row = (path: string) => {
    const [left, right] = [inA.get(path) ?? null, inB.get(path) ?? null];
    const isContainer = containers.has(path);
    const difference = differenceOf(left, right, a.exchanges, b.exchanges, isContainer);
    rows.push({ path, a: left, b: right, difference });
  };
  const pathsB = [...inB.keys()];
  let at = 0;
  for (const path of inA.keys()) {
    const place = pathsB.indexOf(path, at);
    if (place >= 0) {
      for (const only of pathsB.slice(at, place)) if (!inA.has(only)) row(only);
      at = place + 1;
    }
    row(path);
  }
  for (const only of pathsB.slice(at)) if (!inA.has(only)) row(only);
  return rows;
}

/** The first step that differs; a loop differs only because something in it does. */
export function firstDivergence(rows: readonly Aligned[]): Aligned | null {
  const containers = new Set(rows.flatMap((row) => [containerOf(frameOf(row.path))]));
  const differing = rows.filter((row) => row.difference);
  return differing.find((row) => !containers.has(row.path)) ?? differing[0] ?? null;
}

function byPath(steps: readonly Step[]): Map<string, Step> {
  const found = new Map<string, Step>();
  for (const step of steps) found.set(step.path, step);
  return found;
}

function framesIn(steps: readonly Step[]): string[] {
  return steps.map((step) => containerOf(frameOf(step.path))).filter(Boolean);
}

function differenceOf(
  a: Step | null,
  b: Step | null,
  inA: ReadonlyMap<string, Exchange>,
  inB: ReadonlyMap<string, Exchange>,
  isContainer: boolean,
): string {
  if (!a || !b) return a ? "only in A" : "only in B";
  if (a.state !== b.state) return `${a.state} in A, ${b.state} in B`;
  if (a.handle !== b.handle) {
    return `left by ${a.handle || "nothing"} in A, by ${b.handle || "nothing"} in B`;
  }
  if (isContainer) return "";
  const [left, right] = [inA.get(a.path), inB.get(b.path)];
  if (!left || !right) return "";
  const config = differingNames(left.config, right.config);
  if (config.length) return `configuration differs: ${config.join(", ")}`;
  const outputs = differingNames(left.outputs, right.outputs);
  return outputs.length ? `outputs differ: ${outputs.join(", ")}` : "";
}

/** The names whose values differ. */
export function differingNames(a: { [name: string]: Json }, b: { [name: string]: Json }): string[] {
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...names].filter(
    (name) => !VOLATILE.has(name) && JSON.stringify(a[name]) !== JSON.stringify(b[name]),
  );
}
