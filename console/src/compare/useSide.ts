import { useQuery } from "@tanstack/react-query";
import { call } from "../api/client";
import type { ChangeList, EventPage, Explanation, Json, StepPage } from "../api/generated";
import type { Step } from "../run/steps";
import type { Exchange, Side } from "./align";

export interface ComparedRun extends Side {
  why: Explanation;
  workflow: { [key: string]: Json };
  changes: ChangeList;
}

const PAGE = 5_000;
/** Of a longer run, the outputs of the last steps are not compared. */
const EVENTS_READ = 20_000;

/** Read everything about a run that a comparison needs. */
export function useSide(runId: string) {
  return useQuery<ComparedRun>({
    queryKey: ["compared run", runId],
    queryFn: async () => {
      const path = { run_id: runId };
      const [why, own, changes, steps, exchanges] = await Promise.all([
        call("GET /api/runs/{run_id}/why", { path }),
        call("GET /api/runs/{run_id}/workflow", { path }),
        call("GET /api/runs/{run_id}/changes", { path, query: { step: "" } }),
        readSteps(runId),
        readExchanges(runId),
      ]);
      return { why, workflow: own.workflow, changes, steps, exchanges };
    },
  });
}

async function readSteps(runId: string): Promise<Step[]> {
  const steps: Step[] = [];
  let after: number | null = 0;
  while (after !== null) {
    const query: Record<string, number> = { after, limit: PAGE };
    const path = { run_id: runId };
    const page: StepPage = await call("GET /api/runs/{run_id}/steps", { path, query });
    steps.push(...page.steps);
    after = page.next ?? null;
  }
  return steps;
}

async function readExchanges(runId: string): Promise<Map<string, Exchange>> {
  const found = new Map<string, Exchange>();
  let after: number | null = 0;
  for (let read = 0; after !== null && read < EVENTS_READ; ) {
    const query = { after, limit: PAGE, output: false };
    const path = { run_id: runId };
    const page: EventPage = await call("GET /api/runs/{run_id}/log", { path, query });
    for (const message of page.events) {
      const step = message.stepPath ?? "";
      const known = found.get(step) ?? { config: {}, outputs: {} };
      if (message.type === "node_started") {
        found.set(step, { config: message.resolvedConfig, outputs: {} });
      } else if (message.type === "node_finished") {
        found.set(step, { ...known, outputs: message.outputs });
      }
    }
    read += page.events.length;
    after = page.next ?? null;
  }
  return found;
}
