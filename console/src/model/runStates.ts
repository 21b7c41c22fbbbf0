/** How each node of a workflow did in a run, from the run's steps. */
import type { ListedStep } from "../api/generated";

export interface StepState {
  path: string;
  nodeId: string;
  state: string;
}

export interface NodeRun {
  state: string;
  /** Of a container: how each of its rounds ended. */
  rounds?: ("met" | "not-met" | "running" | "failed")[];
}

export function stepStates(steps: readonly ListedStep[]): StepState[] {
  return steps.map(({ path, nodeId, state }) => ({ path, nodeId, state }));
}

/** Return each node's state: of its newest step, in the order in which steps began. */
export function nodeRuns(steps: readonly StepState[]): Map<string, NodeRun> {
  const found = new Map<string, NodeRun>();
  const rounds = new Map<string, string[]>();
  for (const step of steps) {
    if (isCalled(step.path)) continue; // a node of another workflow
    found.set(step.nodeId, { state: step.state });
    const round = /^(.*)\[(\d+)\]\/[^/]*$/.exec(step.path);
    if (!round) continue;
    const loop = (round[1] ?? "").replace(/^.*\//, "").replace(/#\d+$/, "");
    const all = rounds.get(loop) ?? [];
    const at = Number(round[2]) - 1;
    if (all[at] !== "failed") all[at] = step.state;
    if (step.state === "running" || step.state === "waiting") all[at] = "running";
    rounds.set(loop, all.slice(0, at + 1));
  }
  for (const [loop, states] of rounds) {
    const own = found.get(loop);
    if (!own) continue;
    const isOpen = own.state === "running";
    own.rounds = Array.from(states, (state, at) => {
      const isLast = at === states.length - 1;
      if (isLast && isOpen) return "running";
      if (state === "failed") return "failed";
      return isLast && own.state === "succeeded" ? "met" : "not-met";
    });
  }
  return found;
}

/** Whether a step is inside a called workflow: a frame that is neither a round nor a branch. */
function isCalled(path: string): boolean {
  return path
    .split("/")
    .slice(0, -1)
    .some((part) => !/[\]}]$/.test(part));
}
