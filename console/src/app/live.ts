/** Keeps lists fresh: what the server tells makes the pages that show it read again. */
import type { GetRoute } from "../api/client";
import type { Message } from "../api/feed/messages";
import { ALL, subscribe } from "../api/feed/port";
import { refresh } from "../api/query";

const AT_MOST_MS = 1_000;

const LISTS: Record<string, GetRoute[]> = {
  run_started: ["GET /api/runs", "GET /api/triggers/queue", "GET /api/workers"],
  run_resumed: ["GET /api/runs"],
  run_finished: [
    "GET /api/runs",
    "GET /api/costs",
    "GET /api/runs/stats",
    "GET /api/workflows",
    "GET /api/workers",
  ],
  run_stop_requested: ["GET /api/runs"],
  node_started: ["GET /api/runs"],
  node_finished: ["GET /api/runs"],
  node_waiting: ["GET /api/runs"],
  trigger_enqueued: ["GET /api/triggers/queue", "GET /api/runs"],
  trigger_started: ["GET /api/triggers/queue", "GET /api/triggers"],
  trigger_removed: ["GET /api/triggers/queue"],
  trigger_held: ["GET /api/triggers/queue", "GET /api/runs"],
  approval_asked: ["GET /api/approvals", "GET /api/runs"],
  approval_answered: ["GET /api/approvals", "GET /api/runs"],
  state_snapshot: ["GET /api/runs", "GET /api/triggers/queue", "GET /api/approvals"],
};

/** Refresh lists as things happen, each at most once a second. */
export function followServer(): () => void {
  const pending = new Set<GetRoute>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const flush = () => {
    timer = undefined;
    refresh(...pending);
    pending.clear();
  };
  const stop = subscribe(ALL, 0, (messages: Message[]) => {
    for (const message of messages) {
      for (const route of LISTS[message.type] ?? []) pending.add(route);
    }
    if (pending.size && timer === undefined) timer = setTimeout(flush, AT_MOST_MS);
  });
  return () => {
    stop();
    clearTimeout(timer);
  };
}
