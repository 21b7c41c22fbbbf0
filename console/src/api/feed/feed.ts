/** Streams of the server, read once for all tabs of a browser.
 *
 * A browser opens at most six connections to a server, so tabs do not read streams themselves: one
 * worker does. A topic (`all`, `dev`, the log of a process, or a run's id) is a growing list
 * of messages; each tab asks for what came after the last one it has seen. What no tab has asked for yet is merged: output of one step
 * that follows its own output is one message. A tab that is hidden asks nothing and costs nothing.
 */
import { isOfRun, isOutput, type Message, sizeOf } from "./messages";
import { frameReader } from "./parse";

export const ALL = "all";
/** The development loops beside the server. */
export const DEV = "dev";

const PART = "\n";

/** The topic of what a process of a development loop writes. */
export function devLog(process: string): string {
  return `${DEV}${PART}${process}`;
}

const ADDRESSES: Record<string, string> = {
  [ALL]: "/api/events?output=false",
  [DEV]: "/api/dev/events",
};

export interface Link {
  /** Whether the last attempt to read succeeded. */
  online: boolean;
  /** When the connection was lost, in ms; 0 while online. */
  since: number;
  /** The server wants a login. */
  login: boolean;
}

export interface Batch {
  messages: Message[];
  /** The position to ask from next time. */
  next: number;
  /** Whether older messages than `messages` were dropped since the last batch. */
  gap: boolean;
  /** A run's stream has ended: nothing more will come. */
  ended: boolean;
  /** Everything of a run after this sequence number is among the topic's messages. */
  first: number;
  /** Grows when a topic is read anew from an earlier place; positions begin at 0 again. */
  generation: number;
}

const KEPT_CHARACTERS = 16_000_000;
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 15_000;

export class Feed {
  readonly link: Link = { online: true, since: 0, login: false };
  private readonly topics = new Map<string, Topic>();
  private generation = 0;

  constructor(private readonly changed: () => void) {}

  /** Begin to read a topic; of a run, what came after `after`. */
  open(name: string, after = 0): void {
    const known = this.topics.get(name);
    if (known && known.first <= after && !known.isOverBefore(after)) {
      known.readers += 1;
      return;
    }
    known?.close();
    this.generation += 1;
    const topic = new Topic(name, after, this.generation, this.link, this.changed);
    topic.readers = (known?.readers ?? 0) + 1;
    this.topics.set(name, topic);
    void topic.read();
  }

  close(name: string): void {
    const topic = this.topics.get(name);
    if (!topic) return;
    topic.readers -= 1;
    if (topic.readers > 0) return;
    topic.close();
    this.topics.delete(name);
  }

  /** Return what came after a position. */
  take(name: string, position: number): Batch {
    const nothing = { messages: [], next: position, gap: false, ended: false };
    return this.topics.get(name)?.take(position) ?? { ...nothing, first: 0, generation: 0 };
  }
}

class Topic {
  readers = 0;
  private messages: Message[] = [];
  private dropped = 0; // how many messages are gone from the front
  private taken = 0; // up to this position a tab has what is here
  private characters = 0;
  private ended = false;
  private last: string;
  private readonly stopped = new AbortController();

  constructor(
    private readonly name: string,
    public first: number,
    private readonly generation: number,
    private readonly link: Link,
    private readonly changed: () => void,
  ) {
    this.last = first ? String(first) : "";
  }

  close(): void {
    this.stopped.abort();
  }

  /** Whether the stream has ended and a reader has seen all of it: a resumed run goes on. */
  isOverBefore(after: number): boolean {
    return this.ended && after >= Number(this.last);
  }

  take(position: number): Batch {
    const from = Math.max(position, this.dropped);
    const messages = this.messages.slice(from - this.dropped);
    this.taken = this.dropped + this.messages.length;
    return {
      messages,
      next: this.taken,
      gap: position < this.dropped,
      ended: this.ended,
      first: this.first,
      generation: this.generation,
    };
  }

  /** Read until the stream ends or nobody wants it any more; try again when it breaks. */
  async read(): Promise<void> {
    let wait = FIRST_RETRY_MS;
    while (!this.stopped.signal.aborted && !this.ended) {
      try {
        if (await this.readOnce()) wait = FIRST_RETRY_MS;
      } catch {
        if (this.stopped.signal.aborted) return;
        this.setOnline(false);
      }
      if (this.ended) break;
      await pause(wait);
      wait = Math.min(LAST_RETRY_MS, wait * 2);
    }
    this.changed();
  }

  private async readOnce(): Promise<boolean> {
    const headers: Record<string, string> = this.last ? { "last-event-id": this.last } : {};
    const signal = this.stopped.signal;
    const response = await fetch(this.url(), { headers, signal, credentials: "same-origin" });
    this.link.login = response.status === 401;
    if (response.status === 204 || response.status === 404) this.ended = true;
    if (response.status !== 200 || !response.body) {
      this.setOnline(true);
      return false;
    }
    this.setOnline(true);
    const decoder = new TextDecoder();
    const frames = frameReader();
    const reader = response.body.getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      for (const frame of frames(decoder.decode(piece.value, { stream: true }))) {
        for (const text of frame.data) this.add(JSON.parse(text) as Message);
        this.last = frame.id;
      }
      this.changed();
    }
    return true;
  }

  private url(): string {
    const [first, process] = this.name.split(PART);
    if (process !== undefined) return `/api/${first}/${encodeURIComponent(process)}/log/events`;
    return ADDRESSES[this.name] ?? `/api/runs/${encodeURIComponent(this.name)}/events`;
  }

  private add(message: Message): void {
    this.characters += sizeOf(message);
    const latest = this.messages.at(-1);
    const unseen = this.dropped + this.messages.length > this.taken;
    if (unseen && latest && isOutput(message) && isOutput(latest) && continues(latest, message)) {
      // The sequence number stays that of the newest part: readers only compare it.
      this.messages[this.messages.length - 1] = {
        ...message,
        line: latest.line + message.line,
        time: latest.time,
      };
    } else {
      this.messages.push(message);
    }
    if (this.characters > KEPT_CHARACTERS) this.dropOldest();
  }

  private dropOldest(): void {
    const half = Math.ceil(this.messages.length / 2);
    const lastDropped = this.messages[half - 1];
    if (lastDropped && isOfRun(lastDropped)) this.first = lastDropped.seq;
    this.messages = this.messages.slice(half);
    this.dropped += half;
    this.characters = this.messages.reduce((sum, each) => sum + sizeOf(each), 0);
  }

  private setOnline(online: boolean): void {
    if (online === this.link.online) return;
    this.link.online = online;
    this.link.since = online ? 0 : Date.now();
    this.changed();
  }
}

const MERGED_CHARACTERS = 64_000;

function continues(
  latest: { stepPath?: string; stream?: string; line: string },
  next: { stepPath?: string; stream?: string; tool?: unknown },
): boolean {
  return (
    latest.stepPath === next.stepPath &&
    latest.stream === next.stream &&
    !("tool" in latest) &&
    !("tool" in next) &&
    latest.line.length < MERGED_CHARACTERS
  );
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
