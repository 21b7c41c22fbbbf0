/** What can be done with a run; after each, the pages that show it read again. */
import { useCallback, useMemo, useState } from "react";
import { useLocation } from "wouter";
import { call } from "../api/client";
import type { ResumeRequest } from "../api/generated";
import { refresh } from "../api/query";
import { complain, say } from "../ui/Toast/toast";
import { runAddress } from "./address";

export type Asked =
  | { what: "rewind"; step: string }
  | { what: "apply" }
  | { what: "raise-limit" }
  | { what: "compare" }
  | { what: "run-again" };

export interface RunActions {
  /** The dialog that is open. */
  asked: Asked | null;
  ask: (asked: Asked | null) => void;
  isStopping: boolean;
  stop: () => void;
  resume: (how?: ResumeRequest) => void;
  /** Show another run, or this one again. */
  goTo: (runId: string) => void;
}

export function useRunActions(runId: string): RunActions {
  const [, go] = useLocation();
  const [asked, ask] = useState<Asked | null>(null);
  const [stopping, setStopping] = useState("");
  const goTo = useCallback(
    (next: string) => {
      ask(null);
      refresh("GET /api/runs", "GET /api/runs/{run_id}", "GET /api/runs/{run_id}/why");
      if (next !== runId) go(runAddress(next));
    },
    [go, runId],
  );
  const stop = useCallback(async () => {
    setStopping(runId);
    try {
      await call("POST /api/runs/{run_id}/cancel", { path: { run_id: runId } });
      refresh("GET /api/runs", "GET /api/runs/{run_id}", "GET /api/runs/{run_id}/why");
    } catch (error) {
      setStopping("");
      complain(error);
    }
  }, [runId]);
  const resume = useCallback(
    async (how: ResumeRequest = {}) => {
      try {
        const path = { run_id: runId };
        const started = await call("POST /api/runs/{run_id}/resume", { path, body: how });
        setStopping("");
        say("The run goes on.");
        goTo(started.runId);
      } catch (error) {
        complain(error);
      }
    },
    [runId, goTo],
  );
  return useMemo(
    () => ({
      asked,
      ask,
      isStopping: stopping === runId,
      stop: () => void stop(),
      resume: (how) => void resume(how),
      goTo,
    }),
    [asked, stopping, runId, stop, resume, goTo],
  );
}
