/** The visits of a run's nodes: a page of them from the server, and what the stream adds. */
import type { RunMessage } from "../api/feed/messages";
import type { Json, ListedStep } from "../api/generated";

export type Step = ListedStep;

export class StepList {
  private readonly list: Step[] = [];
  private copy: Step[] | null = [];
  private readonly places = new Map<number, number>();
  private readonly open = new Map<string, number>();

  /** Take rows of the server, which know everything up to the moment they were read. */
  load(rows: readonly Step[]): void {
    for (const row of rows) this.put(row);
    this.list.sort((a, b) => a.seq - b.seq);
    this.list.forEach((step, at) => {
      this.places.set(step.seq, at);
    });
  }

  /** The steps in the order in which they began; another array after each change. */
  get steps(): Step[] {
    this.copy ??= [...this.list];
    return this.copy;
  }

  /** Apply a message; one that is known already changes nothing. Return whether something changed. */
  apply(message: RunMessage): boolean {
    const path = message.stepPath ?? "";
    if (message.type === "node_started") {
      const seq = this.open.get(path) ?? message.seq;
      const known = this.at(seq);
      if (known && known.startedAt >= message.time) return false;
      this.put({ ...begun(message), seq, attempt: (known?.attempt ?? 0) + 1 });
      return true;
    }
    const place = this.open.get(path);
    const step = place === undefined ? undefined : this.at(place);
    if (!step || message.seq < step.seq) return false;
    if (message.type === "node_waiting") {
      this.put({ ...step, state: "waiting", waitUntil: message.until });
    } else if (message.type === "tree_saved" && message.when === "after") {
      const { files = 0, insertions = 0, deletions = 0 } = message;
      this.put({ ...step, files, insertions, deletions });
    } else if (message.type === "error" && message.nodeId) {
      this.put({ ...step, error: message.message });
    } else if (message.type === "node_finished") {
      this.put({
        ...step,
        state: step.error ? "failed" : "succeeded",
        handle: message.branch,
        durationMs: message.durationMs,
        waitUntil: null,
        costUsd: numberOr(message.outputs.costUsd, null),
        ...tokensOf(message.outputs),
      });
    } else {
      return false;
    }
    return true;
  }

  private at(seq: number): Step | undefined {
    const place = this.places.get(seq);
    return place === undefined ? undefined : this.list[place];
  }

  private put(step: Step): void {
    const place = this.places.get(step.seq);
    if (place === undefined) {
      this.places.set(step.seq, this.list.length);
      this.list.push(step);
    } else {
      this.list[place] = step;
    }
    this.copy = null;
    if (isOpen(step)) this.open.set(step.path, step.seq);
    else if (this.open.get(step.path) === step.seq) this.open.delete(step.path);
  }
}

export function isOpen(step: Step): boolean {
  return step.state === "running" || step.state === "waiting";
}

/** When a step ended; an open one lasts until now. */
export function endOf(step: Step, now: number): number {
  return step.durationMs === null
    ? Math.max(now, step.startedAt)
    : step.startedAt + step.durationMs;
}

type Started = Extract<RunMessage, { type: "node_started" }>;

function begun(message: Started): Step {
  return {
    path: message.stepPath ?? message.nodeId,
    nodeId: message.nodeId,
    nodeType: message.nodeType,
    iteration: message.loopIteration ?? 0,
    attempt: 1,
    state: "running",
    handle: "",
    startedAt: message.time,
    durationMs: null,
    waitUntil: null,
    error: "",
    costUsd: null,
    inputTokens: 0,
    outputTokens: 0,
    files: null,
    insertions: null,
    deletions: null,
    seq: message.seq,
  };
}

function tokensOf(outputs: { [key: string]: Json }): { inputTokens: number; outputTokens: number } {
  const told = outputs.tokens;
  const counts = told && typeof told === "object" && !Array.isArray(told) ? told : {};
  return {
    inputTokens: numberOr(counts.input, 0) ?? 0,
    outputTokens: numberOr(counts.output, 0) ?? 0,
  };
}

function numberOr(value: Json | undefined, other: number | null): number | null {
  return typeof value === "number" ? value : other;
}
