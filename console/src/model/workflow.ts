/** A workflow as its JSON file says it. Documents are never changed in place: edits return new ones. */
import type { Json } from "../api/generated";

export type JsonObject = { [key: string]: Json };

export interface Point {
  x: number;
  y: number;
}

export interface Size {
  width: number;
  height: number;
}

export interface WorkflowNode {
  id: string;
  type: string;
  label?: string | null;
  /** Relative to the container around it. */
  position?: Point | null;
  size?: Size | null;
  config?: JsonObject;
  /** The nodes inside a container. */
  children?: WorkflowNode[];
}

export interface WorkflowEdge {
  id?: string;
  source: string;
  sourceHandle?: string;
  target: string;
}

export interface Workflow {
  id: string;
  name: string;
  version?: number;
  nodes: WorkflowNode[];
  edges: WorkflowEdge[];
}

/** A node with its place: the containers around it, outermost first. */
export interface Placed {
  node: WorkflowNode;
  parents: WorkflowNode[];
}

export const DEFAULT_HANDLE = "next";

export function handleOf(edge: WorkflowEdge): string {
  return edge.sourceHandle ?? DEFAULT_HANDLE;
}

/** Every node with its containers; a container comes before its children. */
export function* everyNode(
  nodes: readonly WorkflowNode[],
  parents: WorkflowNode[] = [],
): Generator<Placed> {
  for (const node of nodes) {
    yield { node, parents };
    if (node.children?.length) yield* everyNode(node.children, [...parents, node]);
  }
}

/** All nodes by id; of two with one id, the first. */
export function placedById(workflow: Workflow): Map<string, Placed> {
  const found = new Map<string, Placed>();
  for (const placed of everyNode(workflow.nodes)) {
    if (!found.has(placed.node.id)) found.set(placed.node.id, placed);
  }
  return found;
}

export function findNode(workflow: Workflow, id: string): WorkflowNode | undefined {
  for (const { node } of everyNode(workflow.nodes)) if (node.id === id) return node;
  return undefined;
}

/** The id of the container directly around a node; empty at the top level. */
export function parentOf(placed: Placed | undefined): string {
  return placed?.parents.at(-1)?.id ?? "";
}

/** Change each node of a list, at any depth; children first. Lists that stay the same are kept. */
export function mapNodes(
  nodes: WorkflowNode[],
  change: (node: WorkflowNode) => WorkflowNode,
): WorkflowNode[] {
  let same = true;
  const made = nodes.map((node) => {
    const children = node.children && mapNodes(node.children, change);
    const changed = change(children === node.children ? node : { ...node, children });
    same &&= changed === node;
    return changed;
  });
  return same ? nodes : made;
}

/** Change the list of nodes inside a container; of the whole workflow if `parent` is empty. */
export function changeList(
  workflow: Workflow,
  parent: string,
  change: (nodes: WorkflowNode[]) => WorkflowNode[],
): Workflow {
  if (!parent) return { ...workflow, nodes: change(workflow.nodes) };
  const nodes = mapNodes(workflow.nodes, (node) =>
    node.id === parent ? { ...node, children: change(node.children ?? []) } : node,
  );
  return { ...workflow, nodes };
}

/** Return a name that is not taken: `agent-1`, `agent-2`, … or the wanted one itself. */
export function freshId(taken: ReadonlySet<string>, wanted: string): string {
  if (!taken.has(wanted)) return wanted;
  const stem = wanted.replace(/-\d+$/, "");
  for (let number = 2; ; number += 1) {
    const id = `${stem}-${number}`;
    if (!taken.has(id)) return id;
  }
}

export function nodeIds(workflow: Workflow): Set<string> {
  return new Set([...everyNode(workflow.nodes)].map(({ node }) => node.id));
}

/** A name for each edge that stays its own while other edges come and go. */
export function edgeKeys(edges: readonly WorkflowEdge[]): string[] {
  const count = new Map<string, number>();
  return edges.map((edge) => {
    const key = `${edge.source} ${handleOf(edge)} ${edge.target}`;
    const times = (count.get(key) ?? 0) + 1;
    count.set(key, times);
    return times > 1 ? `${key} #${times}` : key;
  });
}

/** Return what keeps a value from being a workflow that can be drawn; empty if nothing does. */
export function whyNotDrawable(value: unknown): string {
  if (!isObject(value)) return "A workflow is an object.";
  if (typeof value.id !== "string") return "`id` is a text.";
  if (!Array.isArray(value.edges)) return "`edges` is a list.";
  for (const [at, edge] of value.edges.entries()) {
    if (!isObject(edge) || typeof edge.source !== "string" || typeof edge.target !== "string") {
      return `edges[${at}] needs the texts \`source\` and \`target\`.`;
    }
  }
  return whyNotNodes(value.nodes, "nodes");
}

function whyNotNodes(value: unknown, place: string): string {
  if (!Array.isArray(value)) return `\`${place}\` is a list.`;
  for (const [at, node] of value.entries()) {
    if (!isObject(node) || typeof node.id !== "string" || typeof node.type !== "string") {
      return `${place}[${at}] needs the texts \`id\` and \`type\`.`;
    }
    if (node.config !== undefined && !isObject(node.config)) {
      return `${place}[${at}].config is an object.`;
    }
    const why = node.children ? whyNotNodes(node.children, `${place}[${at}].children`) : "";
    if (why) return why;
  }
  return "";
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
