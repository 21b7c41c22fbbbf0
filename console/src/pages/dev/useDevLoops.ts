import { useEffect } from "react";
import type { DevLoops } from "../../api/feed/messages";
import { DEV, subscribe } from "../../api/feed/port";
import { queryClient, useApi } from "../../api/query";

/** The development loops, as the server streams them. */
export function useDevLoops() {
  useEffect(
    () =>
      subscribe(DEV, 0, (messages) => {
        const newest = messages.findLast((each): each is DevLoops => each.type === "dev_loops");
        if (!newest) return;
        queryClient.setQueryData(["GET /api/dev", {}, {}], { loops: newest.loops });
      }),
    [],
  );
  return useApi("GET /api/dev");
}
