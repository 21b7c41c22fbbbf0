import { lazy, Suspense, useCallback, useEffect, useMemo, useRef } from "react";
import { useApi } from "../api/query";
import type { NodeState } from "../canvas/graphContext";
import { NodeValues } from "../canvas/perNode";
import type { Workflow } from "../model/workflow";
import { Failure } from "../ui/Failure/Failure";
import css from "./Graph.module.css";
import { nodeStates, visits } from "./graphStates";
import type { Step } from "./steps";
import type { TreeItem } from "./tree";

const WorkflowGraph = lazy(() =>
  import("../canvas/WorkflowGraph").then((module) => ({ default: module.WorkflowGraph })),
);

interface Props {
  runId: string;
  steps: readonly Step[];
  tree: readonly TreeItem[];
  selected: string;
  onSelect: (path: string) => void;
}

/** The run painted on its own workflow, as it was when the run began. */
export function Graph({ runId, steps, tree, selected, onSelect }: Props) {
  const own = useApi(
    "GET /api/runs/{run_id}/workflow",
    { path: { run_id: runId } },
    { staleTime: Number.POSITIVE_INFINITY },
  );
  const states = useMemo(() => new NodeValues<NodeState>(), []);
  useEffect(
    () => states.replace(nodeStates(steps, tree, selected)),
    [states, steps, tree, selected],
  );
  const shown = useMemo(() => visits(steps, selected), [steps, selected]);
  const latest = useRef({ shown, onSelect });
  latest.current = { shown, onSelect };
  const onRound = useCallback((id: string, round: number) => {
    const path = latest.current.shown.get(id)?.path;
    if (path) latest.current.onSelect(`${path}[${round}]`);
  }, []);
  const chosen = steps.find((step) => step.path === selected)?.nodeId;
  if (own.error) return <Failure error={own.error} />;
  return (
    <div className={css.graph}>
      <Suspense fallback={null}>
        {own.data && (
          <WorkflowGraph
            workflow={own.data.workflow as unknown as Workflow}
            states={states}
            selected={chosen}
            onSelect={(id) => {
              const path = shown.get(id)?.path;
              if (path) onSelect(path);
            }}
            onRound={onRound}
          />
        )}
      </Suspense>
    </div>
  );
}
