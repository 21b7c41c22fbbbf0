/** A tab's side of the feed: subscribe to a run, or to what happens on the whole server. */
import { create } from "zustand";
import { Desk } from "./desk";
import type { Link } from "./feed";
import type { Message } from "./messages";
import type { FromWorker, ToWorker } from "./protocol";

export { ALL, DEV, devLog } from "./feed";

/** Whether the server can be reached. */
export const useLink = create<Link>(() => ({ online: true, since: 0, login: false }));

export interface State {
  /** Older messages are not here any more. */
  gap: boolean;
  /** Nothing more will come. */
  ended: boolean;
  /** Everything is told again from the beginning: forget what was told before. */
  restarted: boolean;
  /** Messages of a run up to this sequence number are not told here; the log has them. */
  first: number;
}
export type Listener = (messages: Message[], state: State) => void;

interface Subscription {
  topic: string;
  listener: Listener;
  position: number;
  generation: number;
}

const subscriptions = new Set<Subscription>();
let post: ((message: ToWorker) => void) | null = null;
let isAsking = false;
let isNew = false;

/** Call `listener` with everything that comes after `after`, at most once per animation frame. */
export function subscribe(topic: string, after: number, listener: Listener): () => void {
  const send = connect();
  const subscription = { topic, listener, position: 0, generation: 0 };
  subscriptions.add(subscription);
  send({ do: "open", topic, after });
  soon();
  return () => {
    subscriptions.delete(subscription);
    send({ do: "close", topic });
  };
}

function connect(): (message: ToWorker) => void {
  if (post) return post;
  if (typeof SharedWorker === "undefined") {
    post = new Desk().add(take);
  } else {
    const worker = new SharedWorker(new URL("./worker.ts", import.meta.url), {
      type: "module",
      name: "infloop-feed",
    });
    worker.port.onmessage = (event: MessageEvent<FromWorker>) => take(event.data);
    post = (message) => worker.port.postMessage(message);
  }
  const send = post;
  addEventListener("pagehide", () => send({ do: "leave" }));
  addEventListener("pageshow", (event) => event.persisted && location.reload());
  document.addEventListener("visibilitychange", soon);
  return post;
}

function take(message: FromWorker): void {
  if (message.say === "changed") {
    isNew = true;
    soon();
    return;
  }
  isAsking = false;
  useLink.setState(message.link);
  for (const subscription of [...subscriptions]) {
    const batch = message.batches[subscription.topic];
    if (!batch?.generation) continue;
    const restarted = subscription.generation !== 0 && subscription.generation !== batch.generation;
    if (restarted && subscription.position > 0) {
      subscription.position = 0;
      subscription.generation = batch.generation;
      subscription.listener([], { gap: false, ended: false, restarted: true, first: batch.first });
      isNew = true;
      continue;
    }
    const isFirst = subscription.generation === 0;
    subscription.generation = batch.generation;
    // Two subscriptions to one topic may stand at different positions: the lowest one asked.
    const skipped = Math.max(0, subscription.position - (batch.next - batch.messages.length));
    const fresh = skipped ? batch.messages.slice(skipped) : batch.messages;
    subscription.position = batch.next;
    if (isFirst || fresh.length || batch.gap || batch.ended) {
      const { gap, ended, first } = batch;
      subscription.listener(fresh, { gap, ended, first, restarted: false });
    }
  }
  if (isNew) soon();
}

/** Ask in the next animation frame; a hidden tab asks when it is shown again. */
function soon(): void {
  if (isAsking || document.hidden || subscriptions.size === 0) return;
  isAsking = true;
  requestAnimationFrame(() => {
    isNew = false;
    const positions: Record<string, number> = {};
    for (const { topic, position } of subscriptions) {
      positions[topic] = Math.min(positions[topic] ?? position, position);
    }
    connect()({ do: "ask", positions });
  });
}
