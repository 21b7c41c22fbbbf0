/**
 * What a page knows of one run: its steps and its messages, from the journal and from the stream.
 *
 * The stream tells everything after the sequence number `first`; the log has what is before. The two
 * never overlap, so nothing is shown twice, whenever and in however many tabs a page is opened.
 */
import { call } from "../api/client";
import { isOfRun, type Message, type RunMessage } from "../api/feed/messages";
import { type State, subscribe } from "../api/feed/port";
import { type Step, StepList } from "./steps";

/** Larger than any sequence number. */
export const END = 2 ** 52;
const PAGE = 5_000;
const KEPT_CHARACTERS = 8_000_000;

export interface Snapshot {
  steps: Step[];
  /** Whether the steps of the past are here. */
  isLoaded: boolean;
  /** How many events the stream has told, without output. */
  events: number;
  /** The log has everything up to here; null until that is known. */
  first: number | null;
  error: unknown;
}

type LiveReader = (messages: readonly RunMessage[]) => void;

export class RunJournal {
  private snapshot: Snapshot = { steps: [], isLoaded: false, events: 0, first: null, error: null };
  private readonly list = new StepList();
  private live: RunMessage[] = [];
  private characters = 0;
  private readonly listeners = new Set<() => void>();
  private readonly readers = new Set<LiveReader>();

  constructor(readonly runId: string) {}

  /** Begin to read: the past from the server and, if the run is live, the stream after `last`. */
  open(isLive: boolean, last: number): () => void {
    let isClosed = false;
    this.restart(isLive ? null : END);
    const stop = isLive
      ? subscribe(this.runId, last, (messages, state) => this.take(messages, state))
      : () => undefined;
    void this.loadSteps(() => isClosed);
    return () => {
      isClosed = true;
      stop();
    };
  }

  readonly get = (): Snapshot => this.snapshot;

  readonly listen = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Give a reader all that the stream has told, and then what it tells. */
  follow(reader: LiveReader): () => void {
    this.readers.add(reader);
    reader(this.live);
    return () => this.readers.delete(reader);
  }

  private take(messages: Message[], state: State): void {
    const fresh = messages.filter(isOfRun);
    const restarted = state.restarted || state.gap || this.snapshot.first === null;
    if (restarted) this.restart(state.first);
    for (const message of fresh) this.keep(message);
    let changed = false;
    let events = 0;
    for (const message of fresh) {
      if (message.type === "stdout_chunk") continue;
      events += 1;
      changed = this.list.apply(message) || changed;
    }
    if (events) this.set({ events: this.snapshot.events + events });
    if (changed && this.snapshot.isLoaded) this.set({ steps: this.list.steps });
    for (const reader of this.readers) reader(fresh);
    if (this.characters > KEPT_CHARACTERS) this.drop();
  }

  /** Forget what the stream has told: it tells everything after `first` again. */
  private restart(first: number | null): void {
    this.live = [];
    this.characters = 0;
    this.set({ first });
  }

  private keep(message: RunMessage): void {
    this.characters += message.type === "stdout_chunk" ? message.line.length : 200;
    // Outputs and the scope repeat what was printed; who shows them reads them from the server.
    if (message.type === "node_finished") this.live.push({ ...message, outputs: {} });
    else if (message.type === "run_finished") this.live.push({ ...message, scope: {} });
    else this.live.push(message);
  }

  /** Forget the older half; the log has it. */
  private drop(): void {
    const half = this.live.splice(0, Math.ceil(this.live.length / 2));
    this.characters = this.live.reduce(
      (sum, each) => sum + (each.type === "stdout_chunk" ? each.line.length : 200),
      0,
    );
    this.set({ first: half.at(-1)?.seq ?? this.snapshot.first });
  }

  private async loadSteps(isClosed: () => boolean): Promise<void> {
    const path = { run_id: this.runId };
    try {
      let after: number | null = 0;
      while (after !== null) {
        const query: Record<string, number> = { after, limit: PAGE };
        const page = await call("GET /api/runs/{run_id}/steps", { path, query });
        if (isClosed()) return;
        this.list.load(page.steps);
        after = page.next ?? null;
      }
      for (const message of this.live) this.list.apply(message);
      this.set({ steps: this.list.steps, isLoaded: true });
    } catch (error) {
      if (!isClosed()) this.set({ error });
    }
  }

  private set(change: Partial<Snapshot>): void {
    this.snapshot = { ...this.snapshot, ...change };
    for (const listener of this.listeners) listener();
  }
}
