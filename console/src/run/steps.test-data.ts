/** Steps for tests, from short descriptions. */
import type { Step } from "./steps";

let seq = 0;

export function step(path: string, more: Partial<Step> = {}): Step {
  seq += 1;
  return {
    path,
    nodeId: path.replace(/^.*\//, ""),
    nodeType: "command",
    iteration: 0,
    attempt: 1,
    state: "succeeded",
    handle: "next",
    startedAt: seq * 10,
    durationMs: 5,
    waitUntil: null,
    error: "",
    costUsd: null,
    inputTokens: 0,
    outputTokens: 0,
    files: null,
    insertions: null,
    deletions: null,
    seq,
    ...more,
  };
}

/** A loop with rounds of one agent and one check; the rounds in `failed` fail. */
export function loop(name: string, rounds: number, failed: readonly number[] = []): Step[] {
  const inside = Array.from({ length: rounds }, (_, at) => {
    const round = at + 1;
    const state = failed.includes(round) ? ("failed" as const) : ("succeeded" as const);
    const handle = round === rounds ? "met" : "not_met";
    return [
      step(`${name}[${round}]/agent`, { costUsd: 0.1, files: 1, insertions: 2, deletions: 1 }),
      step(`${name}[${round}]/check`, { state, handle: state === "failed" ? "error" : handle }),
    ];
  });
  return [step(name), ...inside.flat()];
}
