/** The graph as an editor: drag, connect, choose. Every change is a command of the model. */
import { type Connection, type NodeChange, type ReactFlowProps, useReactFlow } from "@xyflow/react";
import { type DragEvent, type KeyboardEvent, useEffect, useMemo } from "react";
import { type FlowEdge, type FlowNode, flowEdges, flowNodes, readingOrder } from "../model/flow";
import type { Point } from "../model/workflow";
import { addNode, nudge } from "./actions";
import { type Editor, useDocument, useEditor, useEditorState } from "./editor";
import { GraphView, useFocusNode } from "./GraphView";
import type { NodeStates } from "./graphContext";
import { useDrag } from "./useDrag";

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
  const nodes = useMemo(() => {
    const ids = new Set(chosen);
    return bare.map((node) => (ids.has(node.id) ? { ...node, selected: true } : node));
  }, [bare, chosen]);
  const edges = useMemo(() => {
    const keys = new Set(chosenEdges);
    return flowEdges(workflow, kinds).map((edge) => ({ ...edge, selected: keys.has(edge.id) }));
  }, [workflow, kinds, chosenEdges]);
  const order = useMemo(() => readingOrder(workflow, kinds), [workflow, kinds]);
  const facts = useMemo(
    () => ({ states, problems: editor.problemsAt, canEdit: true }),
    [states, editor],
  );
  const drag = useDrag(editor, nodes);
  const choosing = useMemo(() => choosingHandlers(editor), [editor]);
  const changing = useMemo(() => changingHandlers(editor, drag), [editor, drag]);

  // After an edit the chosen node is still in sight and has the focus, unless a field has it.
  useEffect(() => {
    const id = editor.getState().nodes.at(-1);
    const active = document.activeElement;
    const isFree = active === document.body || active?.hasAttribute("data-node");
    if (workflow && id && isFree) focusNode(id);
  }, [editor, workflow, focusNode]);

  const onNodeKey = (event: KeyboardEvent, id: string) => {
    const by = event.altKey ? ARROWS[event.key] : undefined;
    if (by) {
      if (!editor.getState().nodes.includes(id)) editor.select([id]);
      nudge(editor, event.shiftKey ? { x: by.x * 5, y: by.y * 5 } : by);
    } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
      editor.select([id]);
      onEdit();
    } else if (event.key === " ") {
      const { nodes: now } = editor.getState();
      editor.select(now.includes(id) ? now.filter((each) => each !== id) : [...now, id]);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const onReach = (id: string, extend: boolean) => {
    const { nodes: now } = editor.getState();
    editor.select(extend ? [...now.filter((each) => each !== id), id] : [id]);
  };
  const onDrop = (event: DragEvent) => {
    const type = event.dataTransfer.getData(DRAGGED_TYPE);
    if (!type) return;
    event.preventDefault();
    const at = screenToFlowPosition({ x: event.clientX, y: event.clientY });
    addNode(editor, kinds.of(type), at);
  };
  return (
    <GraphView
      label="Canvas"
      nodes={nodes}
      edges={edges}
      order={order}
      facts={facts}
      selectNodesOnDrag={false}
      {...choosing}
      {...changing}
      onReach={onReach}
      onNodeKey={onNodeKey}
      onDragOver={(event) => {
        if (event.dataTransfer.types.includes(DRAGGED_TYPE)) event.preventDefault();
      }}
      onDrop={onDrop}
    />
  );
}

// The graph passes its handlers to every node and edge: a new function draws all of them again.
type Handlers = Partial<ReactFlowProps<FlowNode, FlowEdge>>;

function choosingHandlers(editor: Editor): Handlers {
  return {
    onEdgeClick: (event, edge) => {
      const { nodes, edges } = editor.getState();
      const isAdded = event.ctrlKey || event.metaKey;
      editor.select(isAdded ? nodes : [], isAdded ? [...edges, edge.id] : [edge.id]);
    },
    onNodeClick: (event, node) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) editor.select([node.id]);
    },
    onPaneClick: () => editor.select([]),
  };
}

function changingHandlers(editor: Editor, drag: ReturnType<typeof useDrag>): Handlers {
  const choose = (changes: NodeChange<FlowNode>[]) => {
    const selections = changes.filter((change) => change.type === "select");
    if (!selections.length) return;
    const { nodes, edges } = editor.getState();
    const picked = new Set(nodes);
    for (const change of selections) {
      if (change.selected) picked.add(change.id);
      else picked.delete(change.id);
    }
    editor.select([...picked], edges);
  };
  return {
    onNodesChange: (changes) => {
      choose(changes);
      drag.follow(changes);
    },
    onNodeDragStop: (_, node, nodes) => drag.drop(nodes.length ? nodes : [node]),
    onSelectionDragStop: (_, nodes) => drag.drop(nodes),
    onConnect: ({ source, target, sourceHandle }: Connection) =>
      editor.run({ do: "connect", source, handle: sourceHandle ?? "next", target }),
    isValidConnection: ({ source, target }) => Boolean(source && target && source !== target),
  };
}
