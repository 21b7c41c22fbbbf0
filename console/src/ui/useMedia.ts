import { useSyncExternalStore } from "react";

/** Whether a media query holds, as the window changes. */
export function useMedia(query: string): boolean {
  return useSyncExternalStore(
    (changed) => {
      const media = matchMedia(query);
      media.addEventListener("change", changed);
      return () => media.removeEventListener("change", changed);
    },
    () => matchMedia(query).matches,
  );
}

/** A phone: one column, tabs instead of panes. */
export function useNarrow(): boolean {
  return useMedia("(max-width: 699px)");
}
