import { useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import type { Explanation, QueuedRun, RunDetail } from "../api/generated";
import { refresh, useApi } from "../api/query";
import { RunJournal, type Snapshot } from "./journal";

export interface RunView {
  run: RunDetail | null;
  queued: QueuedRun | null;
  why: Explanation | null;
  journal: RunJournal;
  known: Snapshot;
  isLive: boolean;
  error: unknown;
}

const LIVE = new Set(["queued", "running", "stalled"]);
const AT_MOST_MS = 1_000;

/** Read a run and keep it fresh: from its stream while it is live, from its journal afterwards. */
export function useRun(runId: string): RunView {
  const path = { run_id: runId };
  const detail = useApi(
    "GET /api/runs/{run_id}",
    { path },
    { refetchInterval: ({ state }) => pollMs(state.data?.run.status) },
  );
  const found = detail.data?.run ?? null;
  const run = found?.kind === "run" ? found : null;
  const isLive = isLiveStatus(found?.status);
  const why = useApi(
    "GET /api/runs/{run_id}/why",
    { path },
    { enabled: run !== null, refetchInterval: isLive ? 5_000 : false },
  );
  const journal = useMemo(() => new RunJournal(runId), [runId]);
  const known = useSyncExternalStore(journal.listen, journal.get);
  const lastSeq = useRef(0);
  lastSeq.current = run?.lastSeq ?? 0;
  // A run that ends keeps its stream: nothing more comes, and nothing has to be read again.
  const isKnown = run !== null;
  const epoch = run?.epoch ?? 0;
  const wasLive = useRef(false);
  wasLive.current ||= isLive;
  const isStreamed = wasLive.current;
  useEffect(
    () => (isKnown ? journal.open(isStreamed, epoch && lastSeq.current) : undefined),
    [journal, isKnown, isStreamed, epoch],
  );
  useRefreshed(known);
  return {
    run,
    queued: found?.kind === "queued" ? found : null,
    why: why.data ?? null,
    journal,
    known,
    isLive,
    error: detail.error ?? known.error,
  };
}

export function isLiveStatus(status: string | undefined): boolean {
  return LIVE.has(status ?? "");
}

function pollMs(status: string | undefined): number | false {
  if (status === "queued") return 500;
  return isLiveStatus(status) ? 5_000 : false;
}

/** Read the run's summary again when the stream tells an event, at most once a second. */
function useRefreshed(known: Snapshot): void {
  const told = known.events;
  const lastAt = useRef(0);
  useEffect(() => {
    if (!told) return;
    const wait = Math.max(0, lastAt.current + AT_MOST_MS - Date.now());
    const timer = setTimeout(() => {
      lastAt.current = Date.now();
      refresh("GET /api/runs/{run_id}", "GET /api/runs/{run_id}/why");
    }, wait);
    return () => clearTimeout(timer);
  }, [told]);
}
