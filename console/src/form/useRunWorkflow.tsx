import { type ReactNode, useCallback, useState } from "react";
import { useLocation } from "wouter";
import { call } from "../api/client";
import { complain } from "../ui/Toast/toast";
import { RunDialog } from "./RunDialog";
import { needsInputs } from "./runInputs";
import type { Values } from "./schema";
import { newKey, startRun } from "./startRun";

interface Asked {
  workflowId: string;
  initial?: { inputs?: Values; cwd?: string };
}

interface Runner {
  /** Start a run with the defaults; ask first if an input has none. */
  run: (workflowId: string) => Promise<void>;
  /** Ask for the inputs: "Run with inputs…", "Run again". */
  ask: (workflowId: string, initial?: Asked["initial"]) => void;
  isBusy: boolean;
  /** Must be drawn somewhere on the page. */
  dialog: ReactNode;
}

/** Starts runs from any page. */
export function useRunWorkflow(): Runner {
  const [, go] = useLocation();
  const [asked, setAsked] = useState<Asked | null>(null);
  const [isBusy, setBusy] = useState(false);
  const ask = useCallback<Runner["ask"]>((workflowId, initial) => {
    setAsked({ workflowId, initial });
  }, []);
  const run = useCallback(
    async (workflowId: string) => {
      setBusy(true);
      try {
        const { workflow } = await call("GET /api/workflows/{workflow_id}", {
          path: { workflow_id: workflowId },
        });
        if (needsInputs(workflow)) setAsked({ workflowId });
        else go(await startRun({ workflowId }, newKey()));
      } catch (error) {
        complain(error);
      } finally {
        setBusy(false);
      }
    },
    [go],
  );
  const dialog = asked && <RunDialog {...asked} onClose={() => setAsked(null)} />;
  return { run, ask, isBusy, dialog };
}
