/** Parts of the API that the server is about to have; goes away when `generated.ts` has them. */
import type { AttackReport, RunSummary, TriggerView } from "./generated";

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

export type MarkedTrigger = TriggerView & { mark?: string; nextAt?: number | null };

export interface TriggerDelivery {
  at: number;
  verdict: "queued" | "ignored" | "refused";
  status: number | null;
  reason: string;
  detail: string;
  correlationId: string;
  runId: string | null;
  count: number;
}

export interface AttackProgress {
  level: string;
  state: "running" | "done" | "failed";
  startedAt: number;
  finishedAt: number | null;
  done: number;
  total: number | null;
  report: AttackReport | null;
  error: string;
}

declare module "./generated" {
  interface Responses {
    "POST /api/demo": RunPromise;
    "GET /api/triggers/{trigger_id}/deliveries": { deliveries: TriggerDelivery[] };
  }
}
