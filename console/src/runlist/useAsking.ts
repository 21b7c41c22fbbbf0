import { useMemo } from "react";
import { useApi } from "../api/query";

/** The ids of the runs that wait for a person. */
export function useAsking(): ReadonlySet<string> {
  const { data } = useApi("GET /api/approvals", {}, { refetchInterval: 5_000 });
  return useMemo(() => {
    const waiting = data?.approvals.filter((each) => each.state === "waiting") ?? [];
    return new Set(waiting.map((each) => each.runId ?? ""));
  }, [data]);
}
