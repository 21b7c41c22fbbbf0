/** The address of what is shown of a run. */
import { useCallback, useMemo } from "react";
import { useLocation, useSearch } from "wouter";

export type Change = Record<string, string | null>;

/** Read the search part of the address, and change parts of it. */
export function useQuery(): [URLSearchParams, (change: Change, keep?: "push" | "replace") => void] {
  const search = useSearch();
  const [location, go] = useLocation();
  const query = useMemo(() => new URLSearchParams(search), [search]);
  const set = useCallback(
    (change: Change, how: "push" | "replace" = "replace") => {
      const next = new URLSearchParams(search);
      for (const [name, value] of Object.entries(change)) {
        if (value) next.set(name, value);
        else next.delete(name);
      }
      const text = next.toString();
      go(text ? `${location}?${text}` : location, { replace: how === "replace" });
    },
    [search, location, go],
  );
  return [query, set];
}

export function runAddress(runId: string, query: Change = {}, page = ""): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  const text = search.toString();
  return `/r/${encodeURIComponent(runId)}${page}${text ? `?${text}` : ""}`;
}
