/** Wrapping nodes into a container, and taking a container away around its nodes. */
import {
  changeList,
  handleOf,
  type Point,
  parentOf,
  placedById,
  type Workflow,
  type WorkflowEdge,
  type WorkflowNode,
} from "../workflow";
import type { CommandOf } from "./command";
import { newEdge } from "./simple";

export const FRAME_PADDING = 24;
export const FRAME_HEADER = 36;

/** What grouping does to edges that cross the new border. */
export interface Crossing {
  /** The node at which the container begins. */
  entry: string;
  /** Edges that will lead to the container. */
  entering: WorkflowEdge[];
  /** Edges that lead into the middle of the group, where a container cannot be entered. */
  cut: WorkflowEdge[];
  /** Edges that will leave from the container. */
  leaving: WorkflowEdge[];
}

/** Return which of the nodes can be grouped: those beside the first one. */
export function groupable(workflow: Workflow, ids: readonly string[]): string[] {
  const placed = placedById(workflow);
  const first = ids.map((id) => placed.get(id)).find(Boolean);
  if (!first) return [];
  return [...new Set(ids)].filter((id) => {
    const each = placed.get(id);
    return each !== undefined && parentOf(each) === parentOf(first);
  });
}

export function crossing(workflow: Workflow, ids: readonly string[]): Crossing {
  const group = new Set(ids);
  const into = workflow.edges.filter((edge) => !group.has(edge.source) && group.has(edge.target));
  const inner = workflow.edges.filter((edge) => group.has(edge.source) && group.has(edge.target));
  const entry =
    into[0]?.target ?? ids.find((id) => !inner.some((edge) => edge.target === id)) ?? ids[0] ?? "";
  const out = workflow.edges.filter(
    (edge) => group.has(edge.source) && !group.has(edge.target) && handleOf(edge) !== "error",
  );
  const target = out[0]?.target;
  return {
    entry,
    entering: into.filter((edge) => edge.target === entry),
    cut: into.filter((edge) => edge.target !== entry),
    leaving: out.filter((edge) => edge.target === target),
  };
}

export function group(workflow: Workflow, command: CommandOf<"group">): Workflow {
  const ids = groupable(workflow, command.nodes);
  if (!ids.length) return workflow;
  const placed = placedById(workflow);
  const { entry, entering, cut, leaving } = crossing(workflow, ids);
  const inside = new Set(ids);
  const order = [entry, ...ids.filter((id) => id !== entry)];
  const nodes = order.flatMap((id) => placed.get(id)?.node ?? []);
  const corner = cornerOf(nodes);
  const container: WorkflowNode = {
    ...command.container,
    position: { x: corner.x - FRAME_PADDING, y: corner.y - FRAME_HEADER - FRAME_PADDING / 2 },
    children: nodes.map((node) =>
      shift(node, FRAME_PADDING - corner.x, FRAME_HEADER + FRAME_PADDING / 2 - corner.y),
    ),
  };
  const parent = parentOf(placed.get(entry));
  const at = (list: WorkflowNode[]) => list.findIndex((node) => inside.has(node.id));
  const wrapped = changeList(workflow, parent, (list) =>
    list.filter((node) => !inside.has(node.id)).toSpliced(at(list), 0, container),
  );
  const gone = new Set([...cut, ...leaving]);
  const edges: WorkflowEdge[] = workflow.edges
    .filter((edge) => !gone.has(edge))
    .map((edge) => (entering.includes(edge) ? { ...edge, target: container.id } : edge));
  const next = leaving[0]?.target;
  if (next && command.exit) edges.push(newEdge(edges, container.id, command.exit, next));
  return { ...wrapped, edges };
}

export function ungroup(workflow: Workflow, command: CommandOf<"ungroup">): Workflow {
  const placed = placedById(workflow).get(command.node);
  if (!placed) return workflow;
  const { node } = placed;
  const children = node.children ?? [];
  const origin = node.position ?? { x: 0, y: 0 };
  const freed = children.map((child) => shift(child, origin.x, origin.y));
  const unwrapped = changeList(workflow, parentOf(placed), (list) =>
    list.toSpliced(
      list.findIndex((each) => each.id === node.id),
      1,
      ...freed,
    ),
  );
  const first = children[0]?.id;
  const after = workflow.edges.find(
    (edge) => edge.source === node.id && handleOf(edge) !== "error",
  )?.target;
  const edges = workflow.edges.flatMap((edge): WorkflowEdge[] => {
    if (edge.source === node.id) return [];
    if (edge.target !== node.id) return [edge];
    return first && edge.source !== first ? [{ ...edge, target: first }] : [];
  });
  for (const { id } of children) {
    const exit = command.exits[id];
    const leads = edges.some((edge) => edge.source === id && handleOf(edge) !== "error");
    if (after && exit && !leads) edges.push(newEdge(edges, id, exit, after));
  }
  return { ...unwrapped, edges };
}

function cornerOf(nodes: readonly WorkflowNode[]): Point {
  return {
    x: Math.min(...nodes.map((node) => node.position?.x ?? 0)),
    y: Math.min(...nodes.map((node) => node.position?.y ?? 0)),
  };
}

function shift(node: WorkflowNode, x: number, y: number): WorkflowNode {
  const at = node.position ?? { x: 0, y: 0 };
  return { ...node, position: { x: at.x + x, y: at.y + y } };
}
