/** The states of runs, steps, queue entries and processes: a sign, a word, a colour. */

export type Tone = "run" | "ok" | "bad" | "ask" | "hold" | "stall" | "off" | "out";

export interface Look {
  sign: string;
  word: string;
  tone: Tone;
}

const LOOKS: Record<string, Look> = {
  queued: { sign: "○", word: "queued", tone: "off" },
  running: { sign: "●", word: "running", tone: "run" },
  waiting: { sign: "◷", word: "waiting", tone: "hold" },
  paused: { sign: "‖", word: "paused", tone: "hold" },
  asking: { sign: "▲", word: "waits for you", tone: "ask" },
  stalled: { sign: "!", word: "stalled", tone: "stall" },
  interrupted: { sign: "!", word: "interrupted", tone: "stall" },
  succeeded: { sign: "✓", word: "succeeded", tone: "ok" },
  failed: { sign: "✕", word: "failed", tone: "bad" },
  cancelled: { sign: "⊘", word: "cancelled", tone: "off" },
  outside: { sign: "⌁", word: "from outside", tone: "out" },
};

/** Return how a state looks; an unknown one is shown by its own word. */
export function lookOf(state: string): Look {
  return LOOKS[state] ?? { sign: "○", word: state, tone: "off" };
}
