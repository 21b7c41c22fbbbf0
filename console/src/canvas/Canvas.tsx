/** The graph as an editor: drag, connect, choose. Every change is a command of the model. */
import {
  applyNodeChanges,
  type Connection,
  type NodeChange,
  type OnNodeDrag,
  useReactFlow,
} from "@xyflow/react";
import { type KeyboardEvent, useEffect, useMemo, useState } from "react";
import {
  absolutePosition,
  type FlowEdge,
  type FlowNode,
  flowEdges,
  flowNodes,
  frameAt,
  readingOrder,
} from "../model/flow";
import { type Point, parentOf, placedById } from "../model/workflow";
import { addNode, inFrame, nudge } from "./actions";
import { useDocument, useEditor, useEditorState } from "./editor";
import { GraphView, useFocusNode } from "./GraphView";
import type { NodeStates } from "./graphContext";

export const DRAGGED_TYPE = "application/x-infloop-node-type";
const ARROWS: Record<string, Point> = {
  ArrowLeft: { x: -8, y: 0 },
  ArrowRight: { x: 8, y: 0 },
  ArrowUp: { x: 0, y: -8 },
  ArrowDown: { x: 0, y: 8 },
};

interface Props {
  states?: NodeStates;
  /** Go to the settings of the chosen node. */
  onEdit: () => void;
}

export function Canvas({ states, onEdit }: Props) {
  const editor = useEditor();
  const workflow = useDocument();
  const kinds = useEditorState((state) => state.kinds);
  const chosen = useEditorState((state) => state.nodes);
  const chosenEdges = useEditorState((state) => state.edges);
  const { screenToFlowPosition } = useReactFlow();
  const focusNode = useFocusNode();
  const bare = useMemo(() => flowNodes(workflow, kinds), [workflow, kinds]);
  const selected = useMemo(() => {
    const ids = new Set(chosen);
    return bare.map((node) => (ids.has(node.id) ? { ...node, selected: true } : node));
  }, [bare, chosen]);
  // While something is dragged, its positions are here and not yet in the document.
  const [dragged, setDragged] = useState<FlowNode[] | null>(null);
  useEffect(() => {
    if (selected) setDragged(null);
  }, [selected]);
  const edges = useMemo(() => {
    const keys = new Set(chosenEdges);
    return flowEdges(workflow, kinds).map((edge) => ({ ...edge, selected: keys.has(edge.id) }));
  }, [workflow, kinds, chosenEdges]);
  const order = useMemo(() => readingOrder(workflow, kinds), [workflow, kinds]);
  const facts = useMemo(
    () => ({ states, problems: editor.problemsAt, canEdit: true }),
    [states, editor],
  );

  // After an edit the chosen node is still in sight and has the focus, unless a field has it.
  useEffect(() => {
    const id = editor.getState().nodes.at(-1);
    const active = document.activeElement;
    const isFree = active === document.body || active?.hasAttribute("data-node");
    if (workflow && id && isFree) focusNode(id);
  }, [editor, workflow, focusNode]);

  const onNodesChange = (changes: NodeChange<FlowNode>[]) => {
    const picked = new Set(editor.getState().nodes);
    let isPicked = false;
    for (const change of changes) {
      if (change.type !== "select") continue;
      isPicked = true;
      if (change.selected) picked.add(change.id);
      else picked.delete(change.id);
    }
    if (isPicked) editor.select([...picked], editor.getState().edges);
    const moves = changes.filter((change) => change.type === "position" && change.dragging);
    if (moves.length) setDragged((now) => applyNodeChanges(moves, now ?? selected));
  };
  const onDragStop: OnNodeDrag<FlowNode> = (_, node, nodes) => {
    drop(editor, nodes.length ? nodes : [node]);
    setDragged(null);
  };
  const onConnect = ({ source, target, sourceHandle }: Connection) =>
    editor.run({ do: "connect", source, handle: sourceHandle ?? "next", target });
  const onNodeKey = (event: KeyboardEvent, id: string) => {
    const by = event.altKey ? ARROWS[event.key] : undefined;
    if (by) {
      if (!editor.getState().nodes.includes(id)) editor.select([id]);
      nudge(editor, event.shiftKey ? { x: by.x * 5, y: by.y * 5 } : by);
    } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
      editor.select([id]);
      onEdit();
    } else if (event.key === " ") {
      const { nodes } = editor.getState();
      editor.select(nodes.includes(id) ? nodes.filter((each) => each !== id) : [...nodes, id]);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const onReach = (id: string, extend: boolean) => {
    const { nodes } = editor.getState();
    editor.select(extend ? [...nodes.filter((each) => each !== id), id] : [id]);
  };
  return (
    <GraphView
      label="Canvas"
      nodes={dragged ?? selected}
      edges={edges}
      order={order}
      facts={facts}
      onNodesChange={onNodesChange}
      onEdgeClick={(event, edge) => {
        const { nodes, edges: now } = editor.getState();
        const isAdded = event.ctrlKey || event.metaKey;
        editor.select(isAdded ? nodes : [], isAdded ? [...now, edge.id] : [edge.id]);
      }}
      onNodeClick={(event, node) => {
        if (!event.ctrlKey && !event.metaKey && !event.shiftKey) editor.select([node.id]);
      }}
      selectNodesOnDrag={false}
      onPaneClick={() => editor.select([])}
      onNodeDragStop={onDragStop}
      onSelectionDragStop={(_, nodes) => drop(editor, nodes)}
      onConnect={onConnect}
      isValidConnection={(edge) => canConnect(edge as FlowEdge)}
      onReach={onReach}
      onNodeKey={onNodeKey}
      onDragOver={(event) => {
        if (event.dataTransfer.types.includes(DRAGGED_TYPE)) event.preventDefault();
      }}
      onDrop={(event) => {
        const type = event.dataTransfer.getData(DRAGGED_TYPE);
        if (!type) return;
        event.preventDefault();
        addNode(
          editor,
          kinds.of(type),
          screenToFlowPosition({ x: event.clientX, y: event.clientY }),
        );
      }}
    />
  );
}

function canConnect({ source, target }: { source: string; target: string }): boolean {
  return Boolean(source && target && source !== target);
}

/** Leave dragged nodes where they were let go: in the frame below them, or out of all frames. */
function drop(editor: ReturnType<typeof useEditor>, nodes: FlowNode[]): void {
  const { history, kinds } = editor.getState();
  const workflow = history.present;
  const placed = placedById(workflow);
  const ids = new Set(nodes.map((node) => node.id));
  const outer = nodes.filter(
    (node) => !placed.get(node.id)?.parents.some((parent) => ids.has(parent.id)),
  );
  const first = outer[0];
  if (!first) return;
  const absolute = (node: FlowNode): Point => {
    const origin = absolutePosition(workflow, parentOf(placed.get(node.id)));
    return { x: origin.x + node.position.x, y: origin.y + node.position.y };
  };
  const corner = absolute(first);
  const middle = {
    x: corner.x + first.width / 2,
    y: corner.y + (first.data.isFrame ? 16 : first.height / 2),
  };
  const parent = frameAt(workflow, kinds, middle, ids);
  const origin = absolutePosition(workflow, parent);
  const positions = Object.fromEntries(
    outer.map((node) => {
      const at = absolute(node);
      return [node.id, inFrame({ x: at.x - origin.x, y: at.y - origin.y }, parent)];
    }),
  );
  const isSame = outer.every((node) => parentOf(placed.get(node.id)) === parent);
  if (isSame) editor.run({ do: "move", positions });
  else editor.run({ do: "adopt", nodes: outer.map((node) => node.id), parent, positions });
}
