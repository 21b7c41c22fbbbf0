/** What state a process is in, for a person who asks whether it takes runs. */
import type { Worker } from "../../api/generated";
import type { Look } from "../../ui/StateMark/states";

export type WorkerState = Worker["state"] | "held";

const LOOKS: Record<WorkerState, Look> = {
  alive: { sign: "✓", word: "alive", tone: "ok" },
  held: { sign: "◷", word: "held", tone: "hold" },
  frozen: { sign: "!", word: "frozen", tone: "stall" },
  dead: { sign: "✕", word: "dead", tone: "bad" },
};
const FIRST: WorkerState[] = ["dead", "frozen", "alive"];

/** Return the state of a process; it is held if it would take runs and none is started now. */
export function stateOf(worker: Worker, held: string): WorkerState {
  return worker.state === "alive" && worker.capacity > 0 && held ? "held" : worker.state;
}

export function lookOfWorker(state: WorkerState): Look {
  return LOOKS[state];
}

/** What is wrong comes first, then the oldest. */
export function sorted(workers: readonly Worker[]): Worker[] {
  return [...workers].sort(
    (a, b) => FIRST.indexOf(a.state) - FIRST.indexOf(b.state) || a.startedAt - b.startedAt,
  );
}

/** Whether nothing but one server takes runs. */
export function hasOneProcess(workers: readonly Worker[]): boolean {
  return workers.every((each) => each.kind !== "worker") && workers.length <= 1;
}
