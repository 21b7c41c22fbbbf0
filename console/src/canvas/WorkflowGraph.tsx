import { ReactFlowProvider } from "@xyflow/react";
import { useMemo, useState } from "react";
import { flowEdges, flowNodes, readingOrder } from "../model/flow";
import { folded } from "../model/fold";
import type { Kinds } from "../model/kinds";
import { arranged } from "../model/layout";
import type { Workflow } from "../model/workflow";
import { GraphView } from "./GraphView";
import type { NodeStates } from "./graphContext";
import { useKinds } from "./useKinds";

interface Props {
  workflow: Workflow;
  /** How each node did in a run; `NodeValues` holds them. A change redraws its own node only. */
  states?: NodeStates;
  /** The id of the chosen node. */
  selected?: string;
  onSelect?: (id: string) => void;
  /** Show another round of a loop. */
  onRound?: (id: string, round: number) => void;
  label?: string;
}

/** A workflow to look at: it can be walked, zoomed and painted with a run, not changed. */
export function WorkflowGraph(props: Props) {
  const kinds = useKinds();
  if (!kinds) return null;
  return (
    <ReactFlowProvider>
      <Shown {...props} kinds={kinds} />
    </ReactFlowProvider>
  );
}

const ROOM = { width: 1_200, height: 640 };

function Shown({
  workflow,
  states,
  selected,
  onSelect,
  onRound,
  label = "Graph",
  kinds,
}: Props & { kinds: Kinds }) {
  const placed = useMemo(() => arranged(workflow, kinds, ROOM), [workflow, kinds]);
  const bare = useMemo(() => flowNodes(placed, kinds), [placed, kinds]);
  const [frames, setFrames] = useState<ReadonlySet<string>>(new Set());
  const drawn = useMemo(
    () => folded(bare, flowEdges(placed, kinds), frames),
    [bare, placed, kinds, frames],
  );
  const nodes = useMemo(
    () => drawn.nodes.map((node) => (node.id === selected ? { ...node, selected: true } : node)),
    [drawn, selected],
  );
  const order = useMemo(() => {
    const shown = new Set(drawn.nodes.map((node) => node.id));
    return readingOrder(placed, kinds).filter((id) => shown.has(id));
  }, [placed, kinds, drawn]);
  const facts = useMemo(() => {
    const onFold = (id: string) =>
      setFrames((now) => {
        const next = new Set(now);
        if (!next.delete(id)) next.add(id);
        return next;
      });
    return { states, canEdit: false, onRound, onFold };
  }, [states, onRound]);
  return (
    <GraphView
      label={label}
      nodes={nodes}
      edges={drawn.edges}
      order={order}
      facts={facts}
      nodesDraggable={false}
      nodesConnectable={false}
      onNodeClick={(_, node) => onSelect?.(node.id)}
      onReach={(id) => onSelect?.(id)}
    />
  );
}
