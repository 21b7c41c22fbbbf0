import { ReactFlowProvider } from "@xyflow/react";
import { useMemo } from "react";
import { flowEdges, flowNodes, readingOrder } from "../model/flow";
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
  label = "Graph",
  kinds,
}: Props & { kinds: Kinds }) {
  const placed = useMemo(() => arranged(workflow, kinds, ROOM), [workflow, kinds]);
  const bare = useMemo(() => flowNodes(placed, kinds), [placed, kinds]);
  const nodes = useMemo(
    () => bare.map((node) => (node.id === selected ? { ...node, selected: true } : node)),
    [bare, selected],
  );
  const edges = useMemo(() => flowEdges(placed, kinds), [placed, kinds]);
  const order = useMemo(() => readingOrder(placed, kinds), [placed, kinds]);
  const facts = useMemo(() => ({ states, canEdit: false }), [states]);
  return (
    <GraphView
      label={label}
      nodes={nodes}
      edges={edges}
      order={order}
      facts={facts}
      nodesDraggable={false}
      nodesConnectable={false}
      onNodeClick={(_, node) => onSelect?.(node.id)}
      onReach={(id) => onSelect?.(id)}
    />
  );
}
