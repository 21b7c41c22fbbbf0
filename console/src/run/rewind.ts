/** What a rewind keeps and what it runs again. */
import type { RewindPlan } from "../api/generated";
import { containerOf, frameOf, isWithin } from "./paths";
import { endOf, type Step } from "./steps";

export interface RewindSteps {
  kept: Step[];
  again: Step[];
}

/** Split the steps at the one from which a new run begins; it may be a round such as `loop[3]`. */
export function rewindSteps(steps: readonly Step[], to: string): RewindSteps {
  const first = steps.find((step) => isWithin(step.path, to));
  if (!first) return { kept: [...steps], again: [] };
  const holds = containers(steps);
  const leaves = steps.filter((step) => !holds.has(step.path));
  // What was open at that moment begins again, too: another branch of a parallel.
  const isAgain = (step: Step) =>
    step.seq >= first.seq || endOf(step, Number.POSITIVE_INFINITY) > first.startedAt;
  return {
    kept: leaves.filter((step) => !isAgain(step)),
    again: leaves.filter(isAgain),
  };
}

/** The paths of steps that have steps inside. */
function containers(steps: readonly Step[]): Set<string> {
  const found = new Set<string>();
  for (const step of steps) {
    for (let frame = frameOf(step.path); frame; frame = frameOf(containerOf(frame))) {
      found.add(containerOf(frame));
    }
  }
  return found;
}

/** How many files a rewind changes. */
export function restoredFiles(plan: RewindPlan): number {
  return plan.directories.reduce((sum, each) => sum + (each.files?.length ?? 0), 0);
}
