/** The drawing of a workflow: what the editor and the picture of a run share. */
import "@xyflow/react/dist/base.css";
import {
  Background,
  MarkerType,
  MiniMap,
  ReactFlow,
  type ReactFlowProps,
  useReactFlow,
} from "@xyflow/react";
import { type KeyboardEvent, type ReactNode, useEffect, useMemo } from "react";
import type { FlowEdge, FlowNode } from "../model/flow";
import { EDGE_VIEWS } from "./FlowEdge";
import css from "./GraphView.module.css";
import { GraphContext, type GraphFacts } from "./graphContext";
import { NODE_VIEWS } from "./NodeViews";
import { NodeValues } from "./perNode";

interface Props extends Omit<ReactFlowProps<FlowNode, FlowEdge>, "onSelect"> {
  label: string;
  nodes: FlowNode[];
  edges: FlowEdge[];
  /** The ids in the order of the Tab key. */
  order: string[];
  facts: Omit<GraphFacts, "current">;
  /** A node was reached by keys; `extend` keeps the selection. */
  onReach: (id: string, extend: boolean) => void;
  /** Keys on a node that the graph does not use itself. */
  onNodeKey?: (event: KeyboardEvent, id: string) => void;
  children?: ReactNode;
}

const MARKER = { type: MarkerType.ArrowClosed, width: 14, height: 14, color: "var(--edge)" };
const EDGE_OPTIONS = { markerEnd: MARKER };
const FIT = { padding: 0.03, maxZoom: 1, minZoom: 0.2 };
export const FIT_OPTIONS = FIT;

export function GraphView(props: Props) {
  const { label, order, facts, onReach, onNodeKey, children, ...flow } = props;
  const focusNode = useFocusNode();
  const current = useMemo(() => new NodeValues<boolean>(), []);
  const chosen = flow.nodes.find((node) => node.selected)?.id ?? order[0] ?? "";
  useEffect(() => current.replace(new Map([[chosen, true]])), [current, chosen]);
  const { states, problems, canEdit } = facts;
  const value = useMemo(
    () => ({ states, problems, canEdit, current }),
    [states, problems, canEdit, current],
  );
  const reach = (event: KeyboardEvent, id: string | undefined, extend = false) => {
    if (!id) return;
    event.preventDefault();
    event.stopPropagation();
    onReach(id, extend);
    current.replace(new Map([[id, true]]));
    focusNode(id);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const id = (event.target as Element).getAttribute?.("data-node");
    if (!id) return;
    const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (event.key === "Tab" && isPlain) {
      reach(event, order[order.indexOf(id) + (event.shiftKey ? -1 : 1)]);
    } else if (event.key.startsWith("Arrow") && isPlain) {
      reach(event, beside(id, event.key, flow.nodes, flow.edges), event.shiftKey);
    } else onNodeKey?.(event, id);
  };
  return (
    <GraphContext.Provider value={value}>
      <ReactFlow<FlowNode, FlowEdge>
        aria-label={label}
        className={css.graph}
        nodeTypes={NODE_VIEWS as ReactFlowProps["nodeTypes"]}
        edgeTypes={EDGE_VIEWS}
        defaultEdgeOptions={EDGE_OPTIONS}
        nodesFocusable={false}
        edgesFocusable={false}
        disableKeyboardA11y
        deleteKeyCode={null}
        selectionKeyCode="Shift"
        multiSelectionKeyCode={["Control", "Meta"]}
        onlyRenderVisibleElements
        elevateNodesOnSelect={false}
        minZoom={0.1}
        maxZoom={2}
        fitView
        fitViewOptions={FIT}
        proOptions={{ hideAttribution: true }}
        onKeyDown={onKeyDown}
        {...flow}
      >
        <Background gap={16} size={1} color="var(--line)" />
        <MiniMap
          className={css.minimap}
          pannable
          zoomable
          ariaLabel="Overview"
          bgColor="var(--surface)"
          maskColor="color-mix(in srgb, var(--sunken) 70%, transparent)"
          nodeColor={miniColor}
          nodeStrokeColor="var(--edge)"
          nodeBorderRadius={0}
        />
        {children}
      </ReactFlow>
    </GraphContext.Provider>
  );
}

function miniColor(node: FlowNode): string {
  return node.selected ? "var(--ink)" : node.data.isFrame ? "transparent" : "var(--line)";
}

/** Return a function that shows a node and gives it the focus. */
export function useFocusNode(): (id: string) => void {
  const flow = useReactFlow<FlowNode, FlowEdge>();
  return useMemo(() => {
    const focus = (id: string, tries: number) => {
      const element = document.querySelector<HTMLElement>(`[data-node="${CSS.escape(id)}"]`);
      if (element) element.focus({ preventScroll: true });
      else if (tries > 0) requestAnimationFrame(() => focus(id, tries - 1));
    };
    return (id: string) => {
      const node = flow.getInternalNode(id);
      if (node && !isInView(flow, node.internals.positionAbsolute, node.width, node.height)) {
        const { x, y } = node.internals.positionAbsolute;
        const zoom = Math.max(flow.getZoom(), 0.6);
        void flow.setCenter(x + (node.width ?? 0) / 2, y + Math.min(node.height ?? 0, 200) / 2, {
          zoom,
        });
      }
      focus(id, 20);
    };
  }, [flow]);
}

function isInView(
  flow: Pick<ReturnType<typeof useReactFlow>, "flowToScreenPosition">,
  at: { x: number; y: number },
  width = 0,
  height = 0,
): boolean {
  const pane = document.querySelector(".react-flow")?.getBoundingClientRect();
  if (!pane) return true;
  const from = flow.flowToScreenPosition(at);
  const to = flow.flowToScreenPosition({ x: at.x + width, y: at.y + Math.min(height, 60) });
  return from.x >= pane.left && from.y >= pane.top && to.x <= pane.right && to.y <= pane.bottom;
}

/** The node that an arrow key leads to: along an edge, or else the nearest beside it. */
function beside(id: string, key: string, nodes: FlowNode[], edges: FlowEdge[]): string | undefined {
  const along = {
    ArrowRight: edges.find((edge) => edge.source === id)?.target,
    ArrowLeft: edges.find((edge) => edge.target === id)?.source,
  }[key];
  if (along) return along;
  const [dx, dy] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[
    key
  ] ?? [0, 0];
  const self = nodes.find((node) => node.id === id);
  let best: { id: string; far: number } | undefined;
  for (const node of nodes) {
    if (node.id === id || node.parentId !== self?.parentId || !self) continue;
    const x = node.position.x - self.position.x;
    const y = node.position.y - self.position.y;
    const ahead = x * (dx ?? 0) + y * (dy ?? 0);
    if (ahead <= 0) continue;
    const far = ahead + 3 * Math.abs(dx ? y : x);
    if (!best || far < best.far) best = { id: node.id, far };
  }
  return best?.id;
}
