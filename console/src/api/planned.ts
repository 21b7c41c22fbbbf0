/** Parts of the API that the server is about to have; goes away when `generated.ts` has them. */
import type { RunSummary } from "./generated";

export interface OpenStep {
  path: string;
  nodeId: string;
  nodeType: string;
  startedAt: number;
}

export type LiveRun = RunSummary & {
  maxCostUsd?: number | null;
  openSteps?: OpenStep[];
  rounds?: { [loopPath: string]: number };
  lastSignAt?: number | null;
  waiting?: { path: string; until: number; reason: string } | null;
};
