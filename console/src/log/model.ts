/** One log as it is shown: of a run, or of one step; its tail first, earlier pages on demand. */
import { call } from "../api/client";
import type { RunMessage } from "../api/feed/messages";
import type { EventPage } from "../api/generated";
import type { RunJournal } from "../run/journal";
import { isWithin } from "../run/paths";
import { type Row, RowFold } from "./rows";

const FIRST_PAGE = 1_000;
const PAGE = 5_000;
const DRAW_EVERY_MS = 50;

export class LogModel {
  /** Grows with every change. */
  version = 0;
  isLoading = false;
  error: unknown = null;
  private fold = new RowFold();
  private past: RunMessage[] = [];
  private readonly live: RunMessage[] = [];
  private before: number | null;
  private isClosed = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly listeners = new Set<() => void>();

  constructor(
    private readonly journal: RunJournal,
    private readonly step: string,
    first: number,
  ) {
    this.before = first + 1;
  }

  get rows(): readonly Row[] {
    return this.fold.rows;
  }

  /** Whether there is something before the first row. */
  get hasEarlier(): boolean {
    return this.before !== null;
  }

  /** Whether the first page of the past is here. */
  get isLoaded(): boolean {
    return this.past.length > 0 || this.before === null || this.error !== null;
  }

  readonly getVersion = (): number => this.version;

  readonly listen = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  open(): () => void {
    this.isClosed = false;
    this.live.length = 0;
    this.refold();
    const stop = this.journal.follow((messages) => this.take(messages));
    if (!this.isLoaded) void this.loadEarlier(FIRST_PAGE);
    return () => {
      this.isClosed = true;
      clearTimeout(this.timer);
      this.timer = undefined;
      stop();
    };
  }

  /** Read the page before the first row. */
  async loadEarlier(limit = PAGE): Promise<void> {
    if (this.isLoading || this.before === null) return;
    this.isLoading = true;
    this.changed();
    try {
      const found: RunMessage[] = [];
      // With a step, a page may be empty although there is more before it.
      while (this.before !== null && found.length === 0) {
        const page: EventPage = await call("GET /api/runs/{run_id}/log", {
          path: { run_id: this.journal.runId },
          query: { before: this.before, step: this.step, limit },
        });
        found.unshift(...page.events);
        this.before = page.previous ?? null;
      }
      this.past = found.concat(this.past);
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.isLoading = false;
    if (!this.isClosed) this.refold();
    this.changed();
  }

  /** Read earlier pages until a sequence number is among the rows. */
  async loadUntil(seq: number): Promise<void> {
    while (this.before !== null && this.before > seq && !this.error && !this.isClosed) {
      if (this.isLoading) await new Promise((resolve) => setTimeout(resolve, 20));
      else await this.loadEarlier();
    }
  }

  async loadAll(): Promise<void> {
    await this.loadUntil(0);
  }

  private take(messages: readonly RunMessage[]): void {
    for (const message of messages) {
      if (!isWithin(message.stepPath ?? "", this.step)) continue;
      this.live.push(message);
      this.fold.add(message);
    }
    // Drawing costs more than folding: several frames of a stream are drawn as one.
    this.timer ??= setTimeout(() => this.changed(), DRAW_EVERY_MS);
  }

  private refold(): void {
    this.fold = new RowFold();
    for (const message of this.past) this.fold.add(message);
    for (const message of this.live) this.fold.add(message);
  }

  private changed(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.version += 1;
    for (const listener of this.listeners) listener();
  }
}
