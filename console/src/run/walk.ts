/** Going from step to step with the keyboard. */
import type { Line } from "./outline";
import { frameOf } from "./paths";
import type { Step } from "./steps";

/** The line before or after the selected one. */
export function neighbour(lines: readonly Line[], selected: string, by: 1 | -1): string {
  const paths = lines.flatMap((line) => (line.kind === "item" ? [line.item.path] : []));
  const at = paths.indexOf(selected);
  if (at < 0) return (by > 0 ? paths[0] : paths.at(-1)) ?? "";
  return paths[Math.min(paths.length - 1, Math.max(0, at + by))] ?? selected;
}

/** The same place in the round before or after; without one, the round itself. */
export function otherRound(steps: readonly Step[], selected: string, by: 1 | -1): string {
  const round = /^(.*)\[(\d+)\]([^[\]]*)$/.exec(selected);
  const rounds = (loop: string) => [
    ...new Set(
      steps
        .filter((step) => step.path.startsWith(`${loop}[`))
        .map((step) => Number.parseInt(step.path.slice(loop.length + 1), 10)),
    ),
  ];
  if (!round) {
    const loop = selected || (steps.map((step) => frameOf(step.path)).find(Boolean) ?? "");
    const name = loop.replace(/\[\d+\].*$/, "");
    const all = rounds(name);
    const found = by > 0 ? all[0] : all.at(-1);
    return found === undefined ? selected : `${name}[${found}]`;
  }
  const [, loop = "", number = "", rest = ""] = round;
  const all = rounds(loop);
  const next = all[all.indexOf(Number(number)) + by];
  if (next === undefined) return selected;
  const same = `${loop}[${next}]${rest}`;
  return steps.some((step) => step.path === same) ? same : `${loop}[${next}]`;
}

/** The first failed step after the selected one, and then from the beginning. */
export function nextFailure(steps: readonly Step[], selected: string): string {
  const failed = steps.filter((step) => step.state === "failed");
  const at = steps.find((step) => step.path === selected)?.seq ?? -1;
  return (failed.find((step) => step.seq > at) ?? failed[0])?.path ?? selected;
}
