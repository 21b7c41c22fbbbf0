/** A workflow as the nodes and edges that are drawn. */
import { ERROR_HANDLE, isContainer, type Kind, type Kinds, summaryOf } from "./kinds";
import { handleTop, sideHandles, sizeOf } from "./sizes";
import {
  edgeKeys,
  handleOf,
  type Point,
  placedById,
  type Size,
  type Workflow,
  type WorkflowEdge,
  type WorkflowNode,
} from "./workflow";

export interface FlowData extends Record<string, unknown> {
  name: string;
  kind: Kind;
  summary: string;
  /** At the right side. */
  handles: string[];
  hasError: boolean;
  isFrame: boolean;
  isEmpty: boolean;
  isFolded?: boolean;
}

export interface FlowNode {
  id: string;
  type: "card" | "frame" | "note";
  position: Point;
  width: number;
  height: number;
  parentId?: string;
  data: FlowData;
  selected?: boolean;
  zIndex?: number;
  measured?: Size;
}

export interface FlowEdge {
  id: string;
  source: string;
  sourceHandle: string;
  target: string;
  targetHandle: string;
  type: "flow";
  /** `below` and `above`: how far the source goes on below its handle, the target above its own. */
  data: { handle: string; index: number; below: number; above: number };
  selected?: boolean;
}

export const TARGET_HANDLE = "in";

/** What was drawn for a node object. Documents share what did not change, so most is found here. */
const drawn = new WeakMap<WorkflowNode, { kinds: Kinds; parentId?: string; made: FlowNode }>();

/** Return the drawn nodes; containers come before what is inside them. */
export function flowNodes(workflow: Workflow, kinds: Kinds): FlowNode[] {
  const made: FlowNode[] = [];
  const seen = new Set<string>();
  const add = (nodes: readonly WorkflowNode[], parentId?: string) => {
    for (const node of nodes) {
      if (seen.has(node.id)) continue; // two nodes with one id: the check says so
      seen.add(node.id);
      made.push(flowNode(node, kinds, parentId));
      if (node.children) add(node.children, node.id);
    }
  };
  add(workflow.nodes);
  return made;
}

function flowNode(node: WorkflowNode, kinds: Kinds, parentId?: string): FlowNode {
  const known = drawn.get(node);
  if (known && known.kinds === kinds && known.parentId === parentId) return known.made;
  const kind = kinds.of(node.type);
  const isFrame = isContainer(node, kinds);
  const made: FlowNode = {
    id: node.id,
    type: isFrame ? "frame" : kind.runs ? "card" : "note",
    position: node.position ?? { x: 0, y: 0 },
    ...sizeOf(node, kinds),
    ...(parentId ? { parentId } : {}),
    data: {
      name: node.label || node.id,
      kind,
      summary: summaryOf(node, kinds),
      handles: sideHandles(node, kinds),
      hasError: kind.handles.includes(ERROR_HANDLE),
      isFrame,
      isEmpty: !node.children?.length,
    },
  };
  drawn.set(node, { kinds, parentId, made });
  return made;
}

/** Return the drawn edges; an edge to a node that does not exist cannot be drawn. */
export function flowEdges(workflow: Workflow, kinds: Kinds): FlowEdge[] {
  const placed = placedById(workflow);
  const keys = edgeKeys(workflow.edges);
  return workflow.edges.flatMap((edge, index): FlowEdge[] => {
    const source = placed.get(edge.source)?.node;
    const target = placed.get(edge.target)?.node;
    if (!source || !target) return [];
    return [
      {
        id: keys[index] ?? "",
        source: edge.source,
        sourceHandle: handleOf(edge),
        target: edge.target,
        targetHandle: TARGET_HANDLE,
        type: "flow",
        data: { handle: handleOf(edge), index, ...extents(source, target, edge, kinds) },
      },
    ];
  });
}

function extents(source: WorkflowNode, target: WorkflowNode, edge: WorkflowEdge, kinds: Kinds) {
  const size = sizeOf(source, kinds);
  const handles = sideHandles(source, kinds);
  const isFrame = isContainer(source, kinds);
  const at = handles.indexOf(handleOf(edge));
  const below = at < 0 ? 0 : size.height - handleTop(size, at, handles.length, isFrame);
  const above = handleTop(sizeOf(target, kinds), 0, 1, isContainer(target, kinds));
  return { below, above };
}

/** Return where the corner of a node is on the whole canvas. */
export function absolutePosition(workflow: Workflow, id: string): Point {
  const placed = placedById(workflow).get(id);
  const all = placed ? [...placed.parents, placed.node] : [];
  return all.reduce(
    (sum, node) => ({ x: sum.x + (node.position?.x ?? 0), y: sum.y + (node.position?.y ?? 0) }),
    { x: 0, y: 0 },
  );
}

/** Return the innermost container at a point, without some nodes and what is inside them. */
export function frameAt(
  workflow: Workflow,
  kinds: Kinds,
  point: Point,
  except: ReadonlySet<string>,
): string {
  let found = "";
  const look = (nodes: readonly WorkflowNode[], origin: Point) => {
    for (const node of nodes) {
      if (except.has(node.id) || !isContainer(node, kinds)) continue;
      const x = origin.x + (node.position?.x ?? 0);
      const y = origin.y + (node.position?.y ?? 0);
      const { width, height } = sizeOf(node, kinds);
      const isIn = point.x >= x && point.x <= x + width && point.y >= y && point.y <= y + height;
      if (!isIn) continue;
      found = node.id;
      look(node.children ?? [], { x, y });
    }
  };
  look(workflow.nodes, { x: 0, y: 0 });
  return found;
}

/** Return the nodes in the order in which a person reads them: along edges, frames inside. */
export function readingOrder(workflow: Workflow, kinds: Kinds): string[] {
  const order: string[] = [];
  const walk = (nodes: readonly WorkflowNode[]) => {
    const left = new Map(nodes.map((node) => [node.id, node]));
    const visit = (node: WorkflowNode) => {
      if (!left.delete(node.id)) return;
      order.push(node.id);
      walk(node.children ?? []);
      for (const edge of workflow.edges) {
        const next = edge.source === node.id ? left.get(edge.target) : undefined;
        if (next) visit(next);
      }
    };
    const isEntered = (id: string) =>
      workflow.edges.some((edge) => edge.target === id && edge.source !== id);
    for (const node of nodes) if (kinds.of(node.type).isStart) visit(node);
    for (const node of nodes) if (!isEntered(node.id)) visit(node);
    for (const node of nodes) visit(node);
  };
  walk(workflow.nodes);
  return order;
}
