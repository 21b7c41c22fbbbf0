import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { call, type Query } from "../api/client";
import type { RunSummary } from "../api/generated";
import { useApi } from "../api/query";
import { complain } from "../ui/Toast/toast";
import { type RunStock, withNewest, withOlder } from "./merge";

export const PAGE = 200;
const NONE: RunSummary[] = [];

/** The runs that fit a filter, by pages. `since` (ms) ends the list. */
export function useRunList(query: Query, since: number) {
  const wanted = { ...query, limit: PAGE };
  const key = JSON.stringify(wanted);
  const head = useApi("GET /api/runs", { query: wanted }, { refetchInterval: 5_000 });
  const [kept, setKept] = useState<{ key: string; stock: RunStock }>();
  const reading = useRef(false);
  useEffect(() => {
    const page = head.data;
    if (!page || head.isPlaceholderData) return;
    setKept((before) => {
      const stock = before?.key === key ? before.stock : { runs: [], next: null };
      return { key, stock: withNewest(stock, page.runs, page.next ?? null) };
    });
  }, [head.data, head.isPlaceholderData, key]);
  const stock = kept?.key === key ? kept.stock : undefined;
  const next = stock?.next ?? null;
  const isDone = !next || (since > 0 && (stock?.runs.at(-1)?.startedAt ?? 0) < since);
  const readOlder = useCallback(() => {
    if (reading.current || isDone || !next) return;
    reading.current = true;
    call("GET /api/runs", { query: { ...JSON.parse(key), before: next } })
      .then((page) =>
        setKept((before) =>
          before?.key === key
            ? { key, stock: withOlder(before.stock, page.runs, page.next ?? null) }
            : before,
        ),
      )
      .catch(complain)
      .finally(() => {
        reading.current = false;
      });
  }, [isDone, next, key]);
  const all = stock?.runs ?? NONE;
  const runs = useMemo(
    () => (since > 0 ? all.filter((run) => run.startedAt >= since) : all),
    [all, since],
  );
  return { head, runs, readOlder, isDone, isReady: stock !== undefined };
}
