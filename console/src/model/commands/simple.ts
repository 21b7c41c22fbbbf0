/** Edits of single nodes and edges. */
import { renameReferences } from "../references";
import {
  changeList,
  edgeKeys,
  everyNode,
  findNode,
  freshId,
  handleOf,
  mapNodes,
  nodeIds,
  placedById,
  type Workflow,
  type WorkflowEdge,
  type WorkflowNode,
} from "../workflow";
import type { CommandOf } from "./command";

export function add(workflow: Workflow, command: CommandOf<"add">): Workflow {
  const parent = command.parent ?? "";
  if (parent && !findNode(workflow, parent)) return workflow;
  const made = changeList(workflow, parent, (nodes) => [...nodes, ...command.nodes]);
  return command.edges?.length ? { ...made, edges: [...made.edges, ...command.edges] } : made;
}

export function remove(workflow: Workflow, command: CommandOf<"remove">): Workflow {
  const gone = new Set<string>();
  const placed = placedById(workflow);
  for (const id of command.nodes ?? []) {
    const node = placed.get(id)?.node;
    if (node) for (const { node: inside } of everyNode([node])) gone.add(inside.id);
  }
  const keys = edgeKeys(workflow.edges);
  const cut = new Set(command.edges);
  const edges = workflow.edges.filter(
    (edge, at) => !gone.has(edge.source) && !gone.has(edge.target) && !cut.has(keys[at] ?? ""),
  );
  if (!gone.size && edges.length === workflow.edges.length) return workflow;
  return { ...workflow, nodes: without(workflow.nodes, gone), edges };
}

/** Return nodes without some, at any depth. */
export function without(nodes: WorkflowNode[], gone: ReadonlySet<string>): WorkflowNode[] {
  const kept = nodes.filter((node) => !gone.has(node.id));
  const made = kept.map((node) => {
    const children = node.children && without(node.children, gone);
    return children === node.children ? node : { ...node, children };
  });
  return made.length === nodes.length && made.every((node, at) => node === nodes[at])
    ? nodes
    : made;
}

export function move(workflow: Workflow, command: CommandOf<"move">): Workflow {
  const nodes = mapNodes(workflow.nodes, (node) => {
    const to = command.positions[node.id];
    if (!to || (to.x === node.position?.x && to.y === node.position?.y)) return node;
    return { ...node, position: { x: to.x, y: to.y } };
  });
  return nodes === workflow.nodes ? workflow : { ...workflow, nodes };
}

export function arrange(workflow: Workflow, command: CommandOf<"arrange">): Workflow {
  const by = new Map([...everyNode(command.nodes)].map(({ node }) => [node.id, node]));
  const nodes = mapNodes(workflow.nodes, (node) => {
    const { position, size } = by.get(node.id) ?? node;
    const { size: _, ...rest } = node;
    return { ...rest, position, ...(size ? { size } : {}) };
  });
  return { ...workflow, nodes };
}

export function configure(workflow: Workflow, command: CommandOf<"configure">): Workflow {
  return change(workflow, command.node, (node) =>
    node.config === command.config ? node : { ...node, config: command.config },
  );
}

export function label(workflow: Workflow, command: CommandOf<"label">): Workflow {
  return change(workflow, command.node, (node) => {
    if ((node.label ?? "") === command.label) return node;
    const { label: _, ...rest } = node;
    return command.label ? { ...node, label: command.label } : rest;
  });
}

export function rename(workflow: Workflow, command: CommandOf<"rename">): Workflow {
  const { node: from, to } = command;
  const ids = nodeIds(workflow);
  if (from === to || !to || !ids.has(from) || ids.has(to)) return workflow;
  const names = new Map([[from, to]]);
  const nodes = mapNodes(workflow.nodes, (node) => {
    const follows = renameReferences(node, names);
    return follows.id === from ? { ...follows, id: to } : follows;
  });
  const now = (id: string) => (id === from ? to : id);
  const edges = workflow.edges.map((edge) =>
    edge.source === from || edge.target === from
      ? { ...edge, source: now(edge.source), target: now(edge.target) }
      : edge,
  );
  return { ...workflow, nodes, edges };
}

export function connect(workflow: Workflow, command: CommandOf<"connect">): Workflow {
  const { source, handle, target } = command;
  const same = (edge: WorkflowEdge) => edge.source === source && handleOf(edge) === handle;
  const at = workflow.edges.findIndex(same);
  if (at >= 0 && workflow.edges[at]?.target === target) return workflow;
  const rest = workflow.edges.filter((edge) => !same(edge));
  const made = newEdge(rest, source, handle, target);
  return { ...workflow, edges: rest.toSpliced(at < 0 ? rest.length : at, 0, made) };
}

/** Make an edge; its id is free among the others. */
export function newEdge(
  others: readonly WorkflowEdge[],
  source: string,
  sourceHandle: string,
  target: string,
): WorkflowEdge {
  const taken = new Set(others.map((edge) => edge.id ?? ""));
  return { id: freshId(taken, `e-${source}-${sourceHandle}`), source, sourceHandle, target };
}

function change(
  workflow: Workflow,
  id: string,
  by: (node: WorkflowNode) => WorkflowNode,
): Workflow {
  const nodes = mapNodes(workflow.nodes, (node) => (node.id === id ? by(node) : node));
  return nodes === workflow.nodes ? workflow : { ...workflow, nodes };
}
