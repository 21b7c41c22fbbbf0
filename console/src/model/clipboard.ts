/** Nodes as text, which can be pasted into another workflow, a chat or a file. */
import { newEdge } from "./commands/simple";
import { renameReferences } from "./references";
import {
  everyNode,
  freshId,
  handleOf,
  mapNodes,
  nodeIds,
  type Point,
  placedById,
  type Workflow,
  type WorkflowEdge,
  type WorkflowNode,
  whyNotDrawable,
} from "./workflow";

export interface Copied {
  nodes: WorkflowNode[];
  edges: WorkflowEdge[];
}

/** Return nodes with what is inside them and the edges between them. */
export function copied(workflow: Workflow, ids: readonly string[]): Copied {
  const placed = placedById(workflow);
  const chosen = new Set(ids);
  const nodes = ids.flatMap((id) => {
    const each = placed.get(id);
    return each && !each.parents.some((parent) => chosen.has(parent.id)) ? [each.node] : [];
  });
  const inside = new Set([...everyNode(nodes)].map(({ node }) => node.id));
  const edges = workflow.edges.filter((edge) => inside.has(edge.source) && inside.has(edge.target));
  return { nodes, edges };
}

export function toText(what: Copied): string {
  return JSON.stringify({ infloop: "nodes", nodes: what.nodes, edges: what.edges }, null, 2);
}

/** Return what a text holds; null if it is not ours. */
export function fromText(text: string): Copied | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null) return null;
  const { infloop, nodes, edges = [] } = value as Record<string, unknown>;
  if (infloop !== "nodes" || whyNotDrawable({ id: "", nodes, edges })) return null;
  return { nodes: nodes as WorkflowNode[], edges: edges as WorkflowEdge[] };
}

/** Return copies that fit into a workflow: clashing ids are renamed, and references among the
 * copies follow. The copies keep their distances; the first corner is at `at`. */
export function fitted(workflow: Workflow, what: Copied, at?: Point): Copied {
  const taken = nodeIds(workflow);
  const names = new Map<string, string>();
  for (const { node } of everyNode(what.nodes)) {
    const id = freshId(taken, node.id);
    taken.add(id);
    if (id !== node.id) names.set(node.id, id);
  }
  const renamed = mapNodes(what.nodes, (node) => {
    const follows = renameReferences(node, names);
    const id = names.get(node.id);
    return id === undefined ? follows : { ...follows, id };
  });
  const left = Math.min(...renamed.map((node) => node.position?.x ?? 0));
  const top = Math.min(...renamed.map((node) => node.position?.y ?? 0));
  const nodes = renamed.map((node) => {
    const from = node.position ?? { x: 0, y: 0 };
    const to = at ?? { x: left + 32, y: top + 32 };
    return { ...node, position: { x: from.x - left + to.x, y: from.y - top + to.y } };
  });
  const edges: WorkflowEdge[] = [];
  for (const edge of what.edges) {
    const others = [...workflow.edges, ...edges];
    const source = names.get(edge.source) ?? edge.source;
    const target = names.get(edge.target) ?? edge.target;
    edges.push(newEdge(others, source, handleOf(edge), target));
  }
  return { nodes, edges };
}
