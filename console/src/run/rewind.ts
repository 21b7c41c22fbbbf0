import type { RewindPlan } from "../api/generated";

/** How many files a rewind changes. */
export function restoredFiles(plan: RewindPlan): number {
  return plan.directories.reduce((sum, each) => sum + (each.files?.length ?? 0), 0);
}
