import { useSyncExternalStore } from "react";

const narrow = matchMedia("(max-width: 699px)");

function listen(changed: () => void): () => void {
  narrow.addEventListener("change", changed);
  return () => narrow.removeEventListener("change", changed);
}

/** Whether the page is as narrow as a phone. */
export function useNarrow(): boolean {
  return useSyncExternalStore(listen, () => narrow.matches);
}
