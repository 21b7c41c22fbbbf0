import { useEffect, useMemo } from "react";
import { call } from "../api/client";
import { isOfRun, type Message } from "../api/feed/messages";
import { subscribe } from "../api/feed/port";
import { nodeRuns, type StepState, stepStates } from "../model/runStates";
import type { NodeState, NodeStates } from "./graphContext";
import { NodeValues } from "./perNode";

const RETRY_MS = 3_000;

/** The states of the nodes in a run of this workflow; nothing is painted without a run. */
export function useRunStates(workflowId: string, runId: string): NodeStates {
  const states = useMemo(() => new NodeValues<NodeState>(), []);
  useEffect(() => {
    states.replace(new Map());
    if (!runId) return;
    let isOver = false;
    let stop: (() => void) | undefined;
    const steps = new Map<string, StepState>();
    const paint = () => states.replace(nodeRuns([...steps.values()]));
    const follow = async () => {
      const { run } = await call("GET /api/runs/{run_id}", { path: { run_id: runId } });
      if (isOver || run.workflowId !== workflowId) return;
      for await (const page of stepPages(runId)) {
        for (const step of stepStates(page)) steps.set(step.path, step);
        if (isOver) return;
      }
      paint();
      const isLive = run.kind === "queued" || run.status === "running" || run.status === "stalled";
      if (!isLive) return;
      const after = run.kind === "run" ? run.lastSeq : 0;
      stop = subscribe(runId, after, (messages) => {
        for (const message of messages) apply(steps, message);
        paint();
      });
    };
    let retry: ReturnType<typeof setTimeout> | undefined;
    const begin = () => {
      follow().catch(() => {
        if (!isOver) retry = setTimeout(begin, RETRY_MS);
      });
    };
    begin();
    return () => {
      isOver = true;
      clearTimeout(retry);
      stop?.();
    };
  }, [states, workflowId, runId]);
  return states;
}

async function* stepPages(runId: string) {
  for (let after: number | null | undefined = 0; after !== null && after !== undefined; ) {
    const query: { after: number; limit: number } = { after, limit: 1_000 };
    const page = await call("GET /api/runs/{run_id}/steps", { path: { run_id: runId }, query });
    yield page.steps;
    after = page.next;
  }
}

const ENDED: Record<string, string> = { error: "failed" };

function apply(steps: Map<string, StepState>, message: Message): void {
  if (!isOfRun(message) || !message.stepPath || !("nodeId" in message)) return;
  if (!message.nodeId) return;
  const { stepPath: path, nodeId } = message;
  if (message.type === "node_started") {
    steps.delete(path); // it is the newest again
    steps.set(path, { path, nodeId, state: "running" });
  } else if (message.type === "node_finished") {
    steps.set(path, { path, nodeId, state: ENDED[message.branch] ?? "succeeded" });
  } else if (message.type === "node_waiting") {
    steps.set(path, { path, nodeId, state: "waiting" });
  }
}
