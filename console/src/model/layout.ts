/** Places nodes: each container by itself from the inside out, ranks wrapped like lines of text. */
import dagre from "@dagrejs/dagre";
import { FRAME_HEADER, FRAME_PADDING } from "./commands/grouping";
import { isContainer, type Kinds } from "./kinds";
import { sizeOf } from "./sizes";
import {
  everyNode,
  type Size,
  type Workflow,
  type WorkflowEdge,
  type WorkflowNode,
} from "./workflow";

const RANK_GAP = 40;
const NODE_GAP = 28;
const BAND_GAP = 44;
const WORTH_WRAPPING = 1.05;
const WRAPPED_CONTENT: Size = { width: 1_000, height: 640 };

interface Box extends Size {
  id: string;
  x: number;
  y: number;
  rank: number;
}

/** Return the nodes of a workflow with new positions, so that they fit well into `room`. */
export function tidied(workflow: Workflow, kinds: Kinds, room: Size): WorkflowNode[] {
  return placed(workflow.nodes, workflow.edges, kinds, room, { x: 0, y: 0 });
}

/** Return a workflow in which every node has a place: lists without any positions are laid out. */
export function arranged(workflow: Workflow, kinds: Kinds, room: Size): Workflow {
  const inner = (nodes: WorkflowNode[], around: Size): WorkflowNode[] => {
    if (nodes.length && !nodes.some((node) => isPlaced(node, nodes.length))) {
      const origin = around === room ? { x: 0, y: 0 } : INSIDE;
      return placed(nodes, workflow.edges, kinds, around, origin);
    }
    return nodes.map((node) => {
      const children = node.children && inner(node.children, WRAPPED_CONTENT);
      return children === node.children ? node : { ...node, children };
    });
  };
  return isArranged(workflow.nodes)
    ? workflow
    : { ...workflow, nodes: inner(workflow.nodes, room) };
}

function isArranged(nodes: WorkflowNode[]): boolean {
  return (
    (!nodes.length || nodes.some((node) => isPlaced(node, nodes.length))) &&
    nodes.every((node) => isArranged(node.children ?? []))
  );
}

/** Whether a node was given a place. A single node at the corner is at a good place. */
function isPlaced(node: WorkflowNode, beside: number): boolean {
  const at = node.position;
  return Boolean(at && (at.x !== 0 || at.y !== 0 || beside === 1));
}

const INSIDE = { x: FRAME_PADDING, y: FRAME_HEADER + FRAME_PADDING / 2 };

function placed(
  nodes: WorkflowNode[],
  edges: readonly WorkflowEdge[],
  kinds: Kinds,
  room: Size,
  origin: { x: number; y: number },
): WorkflowNode[] {
  const filled = nodes.map((node) => {
    if (!isContainer(node, kinds)) return node;
    const { size: _, ...rest } = node;
    const inner = placed(node.children ?? [], edges, kinds, WRAPPED_CONTENT, INSIDE);
    return { ...rest, children: inner };
  });
  const isNote = (node: WorkflowNode) => !kinds.of(node.type).runs;
  const boxes = ranked(
    filled.filter((node) => !isNote(node)),
    edges,
    kinds,
  );
  wrap(boxes, room);
  const at = new Map(boxes.map((box) => [box.id, { x: origin.x + box.x, y: origin.y + box.y }]));
  // Notes are not part of the flow: they stand below it.
  let x = origin.x;
  const bottom = Math.max(
    origin.y,
    ...boxes.map((box) => origin.y + box.y + box.height + BAND_GAP),
  );
  for (const note of filled.filter(isNote)) {
    at.set(note.id, { x, y: bottom });
    x += sizeOf(note, kinds).width + RANK_GAP;
  }
  return filled.map((node) => ({ ...node, position: at.get(node.id) ?? node.position ?? origin }));
}

/** Lay out nodes from left to right in one long line, with their ranks. */
function ranked(nodes: WorkflowNode[], edges: readonly WorkflowEdge[], kinds: Kinds): Box[] {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: NODE_GAP, ranksep: RANK_GAP });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node.id, { ...sizeOf(node, kinds) });
  for (const [source, target] of lifted(nodes, edges)) graph.setEdge(source, target);
  dagre.layout(graph);
  return nodes.map(({ id }) => {
    const { x, y, width, height, rank } = graph.node(id) as unknown as Box;
    return { id, x: x - width / 2, y: y - height / 2, width, height, rank: rank ?? 0 };
  });
}

/** Edges between siblings: an edge of a nested node counts for the sibling it is in. */
function lifted(nodes: WorkflowNode[], edges: readonly WorkflowEdge[]): [string, string][] {
  const sibling = new Map<string, string>();
  for (const node of nodes) {
    for (const { node: inside } of everyNode([node])) sibling.set(inside.id, node.id);
  }
  return edges.flatMap((edge): [string, string][] => {
    const source = sibling.get(edge.source);
    const target = sibling.get(edge.target);
    return source && target && source !== target ? [[source, target]] : [];
  });
}

interface Column {
  boxes: Box[];
  left: number;
  right: number;
}

/** Break the line of ranks into bands, as many as make the picture largest in `room`. */
function wrap(boxes: Box[], room: Size): void {
  const columns = columnsOf(boxes);
  let best: Column[][] = [columns];
  let bestZoom = zoomOf(best, room);
  const widths = columns.map((column) => column.right - (columns[0]?.left ?? 0)).reverse();
  for (const width of new Set(widths)) {
    const bands = broken(columns, width);
    const zoom = zoomOf(bands, room);
    // A line that goes on is easier to read: more bands must make it clearly larger.
    if (zoom > bestZoom * WORTH_WRAPPING) {
      best = bands;
      bestZoom = zoom;
    }
  }
  let y = 0;
  for (const band of best) {
    const left = band[0]?.left ?? 0;
    const all = band.flatMap((column) => column.boxes);
    const top = Math.min(...all.map((box) => box.y));
    for (const box of all) {
      box.x -= left;
      box.y += y - top;
    }
    y = Math.max(y, ...all.map((box) => box.y + box.height)) + BAND_GAP;
  }
}

function columnsOf(boxes: Box[]): Column[] {
  const byRank = new Map<number, Box[]>();
  for (const box of boxes) byRank.set(box.rank, [...(byRank.get(box.rank) ?? []), box]);
  return [...byRank.entries()]
    .sort(([a], [b]) => a - b)
    .map(([, list]) => ({
      boxes: list,
      left: Math.min(...list.map((box) => box.x)),
      right: Math.max(...list.map((box) => box.x + box.width)),
    }));
}

function broken(columns: Column[], width: number): Column[][] {
  const bands: Column[][] = [];
  for (const column of columns) {
    const band = bands.at(-1);
    if (band?.[0] && column.right - band[0].left <= width) band.push(column);
    else bands.push([column]);
  }
  return bands;
}

function zoomOf(bands: Column[][], room: Size): number {
  let width = 0;
  let height = -BAND_GAP;
  for (const band of bands) {
    const all = band.flatMap((column) => column.boxes);
    width = Math.max(width, (band.at(-1)?.right ?? 0) - (band[0]?.left ?? 0));
    const top = Math.min(...all.map((box) => box.y));
    height += Math.max(...all.map((box) => box.y + box.height)) - top + BAND_GAP;
  }
  return Math.min(1, room.width / width, room.height / height);
}
