import type { Look } from "../../ui/StateMark/states";

const LOOKS: Record<string, Look> = {
  stopped: { sign: "⊘", word: "stopped", tone: "off" },
  waiting: { sign: "◷", word: "waiting", tone: "hold" },
  starting: { sign: "○", word: "starting", tone: "run" },
  running: { sign: "●", word: "running", tone: "run" },
  ready: { sign: "✓", word: "ready", tone: "ok" },
  restarting: { sign: "⟳", word: "restarting", tone: "run" },
  "crash-loop": { sign: "!", word: "crash loop", tone: "stall" },
  failed: { sign: "✕", word: "failed", tone: "bad" },
};

/** Return how the state of a process looks. */
export function lookOfProcess(state: string): Look {
  return LOOKS[state] ?? { sign: "○", word: state, tone: "off" };
}
