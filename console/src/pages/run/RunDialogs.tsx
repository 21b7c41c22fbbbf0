import { lazy, Suspense } from "react";
import type { Explanation, RunDetail } from "../../api/generated";
import { ApplyDialog } from "../../run/ApplyDialog";
import type { RunActions } from "../../run/actions";
import { CompareDialog } from "../../run/CompareDialog";
import { LimitDialog } from "../../run/LimitDialog";
import { RewindDialog } from "../../run/RewindDialog";

const RunDialog = lazy(() =>
  import("../../form/RunDialog").then((module) => ({ default: module.RunDialog })),
);

interface Props {
  run: RunDetail;
  why: Explanation | null;
  actions: RunActions;
}

/** The dialog of the action that was asked for. */
export function RunDialogs({ run, why, actions }: Props) {
  const { asked, ask, resume, goTo } = actions;
  const close = () => ask(null);
  if (asked?.what === "rewind") {
    return <RewindDialog runId={run.runId} to={asked.step} onClose={close} onStarted={goTo} />;
  }
  if (asked?.what === "apply") return <ApplyDialog runId={run.runId} onClose={close} />;
  if (asked?.what === "compare") {
    return <CompareDialog runId={run.runId} workflowId={run.workflowId} onClose={close} />;
  }
  if (asked?.what === "run-again") {
    const initial = { inputs: why?.inputs ?? {}, cwd: why?.workdir };
    return (
      <Suspense fallback={null}>
        <RunDialog workflowId={run.workflowId} initial={initial} onClose={close} />
      </Suspense>
    );
  }
  if (asked?.what === "raise-limit") {
    return <LimitDialog onClose={close} onResume={(maxCostUsd) => resume({ maxCostUsd })} />;
  }
  return null;
}
