import type { RunSummary } from "../../api/generated";
import type { Round } from "../../ui/Tally/Tally";

/** Return the rounds of the loop in which a live run is; the innermost one if there are several. */
export function roundsOf(run: RunSummary): Round[] {
  const loops = Object.entries(run.rounds ?? {}).sort(([a], [b]) => a.length - b.length);
  const count = loops.at(-1)?.[1] ?? 0;
  if (count < 1) return [];
  const done = Array.from({ length: count - 1 }, (): Round => "not-met");
  return run.status === "running" ? [...done, "running"] : [...done, "not-met"];
}
