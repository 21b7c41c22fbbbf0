/** The drawing of a workflow: what the editor and the picture of a run share. */
import "@xyflow/react/dist/base.css";
import {
  Background,
  type FitViewOptions,
  MarkerType,
  ReactFlow,
  type ReactFlowProps,
  type ReactFlowState,
  useReactFlow,
  useStore,
} from "@xyflow/react";
import {
  type CSSProperties,
  type KeyboardEvent,
  type ReactNode,
  useCallback,
  useEffect,
  useMemo,
} from "react";
import type { FlowEdge, FlowNode } from "../model/flow";
import { EDGE_VIEWS } from "./FlowEdge";
import css from "./GraphView.module.css";
import { GraphContext, type GraphFacts } from "./graphContext";
import { NODE_VIEWS } from "./NodeViews";
import { Overview } from "./Overview";
import { NodeValues } from "./perNode";

interface Props extends Omit<ReactFlowProps<FlowNode, FlowEdge>, "onSelect"> {
  label: string;
  nodes: FlowNode[];
  edges: FlowEdge[];
  /** The ids in the order of the Tab key. */
  order: string[];
  facts: Omit<GraphFacts, "current" | "isFar">;
  /** A node was reached by keys; `extend` keeps the selection. */
  onReach: (id: string, extend: boolean) => void;
  /** Keys on a node that the graph does not use itself. */
  onNodeKey?: (event: KeyboardEvent, id: string) => void;
  children?: ReactNode;
}

const MARKER = { type: MarkerType.ArrowClosed, width: 14, height: 14, color: "var(--edge)" };
const EDGE_OPTIONS = { markerEnd: MARKER };
/** The toolbars above and below the graph cover nothing of it. */
export const FIT_OPTIONS: FitViewOptions<FlowNode> = {
  padding: { top: "16px", right: "24px", bottom: "56px", left: "24px" },
  maxZoom: 1,
  minZoom: 0.1,
};

export function GraphView(props: Props) {
  const { label, order, facts, onReach, onNodeKey, children, ...flow } = props;
  const focusNode = useFocusNode();
  const current = useMemo(() => new NodeValues<boolean>(), []);
  const chosen = flow.nodes.find((node) => node.selected)?.id ?? order[0] ?? "";
  useEffect(() => current.replace(new Map([[chosen, true]])), [current, chosen]);
  const far = useStore(farness);
  const { states, problems, canEdit, onRound, onFold } = facts;
  const value = useMemo(
    () => ({ states, problems, canEdit, current, isFar: far > 0, onRound, onFold }),
    [states, problems, canEdit, current, far, onRound, onFold],
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
        data-far={far || undefined}
        style={{ "--far": far } as CSSProperties}
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
        fitViewOptions={FIT_OPTIONS}
        proOptions={{ hideAttribution: true }}
        onKeyDown={onKeyDown}
        onMove={covered}
        onMoveEnd={uncovered}
        {...flow}
      >
        {!far && <Background gap={16} size={1} color="var(--line)" />}
        <Overview />
        {children}
      </ReactFlow>
    </GraphContext.Provider>
  );
}

/** Mark a graph that is panned: from the first movement on, since a press alone may be a click. */
function covered(event: MouseEvent | TouchEvent | null): void {
  if (event?.type === "mousemove") graphOf(event)?.setAttribute("data-panned", "");
}

function uncovered(): void {
  for (const graph of document.querySelectorAll("[data-panned]")) {
    graph.removeAttribute("data-panned");
  }
}

function graphOf(event: MouseEvent | TouchEvent): Element | null {
  return event.target instanceof Element ? event.target.closest(".react-flow") : null;
}

/** How much larger letters must be drawn to be read; 0 if nodes are near enough. */
function farness({ transform: [, , zoom] }: ReactFlowState): number {
  return zoom < FAR ? Math.ceil(4 / zoom) / 4 : 0;
}

const FAR = 0.75;

/** Return a function that moves the view to a node, if it is out of sight. */
export function useReveal(): (id: string) => void {
  const flow = useReactFlow<FlowNode, FlowEdge>();
  return useCallback(
    (id: string) => {
      const node = flow.getInternalNode(id);
      if (!node) return;
      const { x, y } = node.internals.positionAbsolute;
      const [width, height] = [node.width ?? 0, Math.min(node.height ?? 0, 200)];
      if (isInView(flow, { x, y }, width, height)) return;
      void flow.setCenter(x + width / 2, y + height / 2, { zoom: Math.max(flow.getZoom(), 0.6) });
    },
    [flow],
  );
}

/** Return a function that shows a node and gives it the focus. */
export function useFocusNode(): (id: string) => void {
  const reveal = useReveal();
  return useCallback(
    (id: string) => {
      const find = () => document.querySelector<HTMLElement>(`[data-node="${CSS.escape(id)}"]`);
      // An edit may just have put the node elsewhere, out of sight, where it is drawn only in some
      // of the next frames. A later wish wins, and so does another element that gets the focus.
      const before = document.activeElement;
      lastAsked += 1;
      const asked = lastAsked;
      const focus = (frames: number) => {
        reveal(id);
        find()?.focus({ preventScroll: true });
        requestAnimationFrame(() => {
          const isWanted = frames > 0 && asked === lastAsked && isFocusFree(id, before);
          if (isWanted) focus(frames - 1);
        });
      };
      focus(FRAMES);
    },
    [reveal],
  );
}

const FRAMES = 40;
let lastAsked = 0;

/** Whether the focus is nowhere, where it was, or on the node already. */
function isFocusFree(id: string, before: Element | null): boolean {
  const active = document.activeElement;
  const isOnNode = active?.getAttribute("data-node") === id;
  return active === document.body || active === before || isOnNode;
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
