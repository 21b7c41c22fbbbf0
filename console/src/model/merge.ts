/** Merges two versions of a workflow that began as the same one: by node, by edge, by field. */
import {
  edgeKeys,
  everyNode,
  parentOf,
  type Workflow,
  type WorkflowEdge,
  type WorkflowNode,
} from "./workflow";

export type Side = "mine" | "theirs";

/** A node, or a field of the workflow, that both changed, each in another way. */
export interface Clash {
  /** `node:ID` or `field:NAME`. */
  key: string;
  name: string;
  mine: unknown;
  theirs: unknown;
}

export interface Merged {
  workflow: Workflow;
  clashes: Clash[];
}

interface Entry {
  node: WorkflowNode;
  parent: string;
}

const OWN_FIELDS = new Set(["nodes", "edges", "version", "createdAt", "updatedAt"]);

/** Merge by what each side changed. Of a clash the chosen side is taken, mine unless told. */
export function merge(
  base: Workflow,
  mine: Workflow,
  theirs: Workflow,
  choices: Readonly<Record<string, Side>> = {},
): Merged {
  const clashes: Clash[] = [];
  const decide = <T>(key: string, name: string, was: T, one: T, other: T): T => {
    if (same(one, other) || same(was, other)) return one;
    if (same(was, one)) return other;
    clashes.push({ key, name, mine: one, theirs: other });
    return choices[key] === "theirs" ? other : one;
  };
  const [was, one, other] = [entries(base), entries(mine), entries(theirs)];
  const kept = new Map<string, Entry>();
  for (const id of new Set([...one.keys(), ...other.keys()])) {
    const [a, b, c] = [was.get(id), one.get(id), other.get(id)];
    const chosen = decide(`node:${id}`, id, meaning(a), meaning(b), meaning(c));
    const from = same(chosen, meaning(b)) ? b : c;
    if (!from) continue;
    const parent = b && same(a?.parent, c?.parent) ? b.parent : (c ?? from).parent;
    kept.set(id, { node: withPlace(from.node, b?.node ?? from.node), parent });
  }
  const fields: Record<string, unknown> = {};
  const [w, m, t] = [base, mine, theirs] as unknown as Record<string, unknown>[];
  for (const name of new Set([...Object.keys(mine), ...Object.keys(theirs)])) {
    if (OWN_FIELDS.has(name)) continue;
    const value = decide(`field:${name}`, name, w?.[name], m?.[name], t?.[name]);
    if (value !== undefined) fields[name] = value;
  }
  const order = [...one.keys(), ...[...other.keys()].filter((id) => !one.has(id))];
  const workflow = {
    ...fields,
    version: theirs.version,
    nodes: tree(order, kept),
    edges: mergedEdges(base, mine, theirs, kept),
  } as Workflow;
  return { workflow, clashes };
}

function entries(workflow: Workflow): Map<string, Entry> {
  const found = new Map<string, Entry>();
  for (const placed of everyNode(workflow.nodes)) {
    found.set(placed.node.id, { node: placed.node, parent: parentOf(placed) });
  }
  return found;
}

/** What a node does, without where it is drawn. */
function meaning(entry: Entry | undefined): unknown {
  if (!entry) return undefined;
  const { position: _, size: __, children: ___, ...rest } = entry.node;
  return rest;
}

function withPlace(node: WorkflowNode, drawn: WorkflowNode): WorkflowNode {
  const { position, size } = drawn;
  return { ...node, ...(position ? { position } : {}), ...(size ? { size } : {}) };
}

/** Build the lists of nodes again. A node whose container is gone stands at the top level. */
function tree(order: readonly string[], kept: ReadonlyMap<string, Entry>): WorkflowNode[] {
  const parentIn = (id: string) => {
    const parent = kept.get(id)?.parent ?? "";
    return kept.has(parent) && !isInside(parent, id, kept) ? parent : "";
  };
  const build = (parent: string): WorkflowNode[] =>
    order
      .filter((id) => kept.has(id) && parentIn(id) === parent)
      .flatMap((id) => {
        const node = kept.get(id)?.node;
        if (!node) return [];
        const children = build(id);
        const { children: had, ...rest } = node;
        return [had || children.length ? { ...rest, children } : rest];
      });
  return build("");
}

/** Whether a container is inside a node, which two moves can make. */
function isInside(container: string, id: string, kept: ReadonlyMap<string, Entry>): boolean {
  const seen = new Set<string>();
  for (let at = container; at && !seen.has(at); at = kept.get(at)?.parent ?? "") {
    if (at === id) return true;
    seen.add(at);
  }
  return false;
}

/** An edge stays if neither side removed it; one between nodes that are gone goes. */
function mergedEdges(
  base: Workflow,
  mine: Workflow,
  theirs: Workflow,
  kept: ReadonlyMap<string, Entry>,
): WorkflowEdge[] {
  const by = (workflow: Workflow) => {
    const keys = edgeKeys(workflow.edges);
    return new Map(workflow.edges.map((edge, at) => [keys[at] ?? "", edge]));
  };
  const [was, one, other] = [by(base), by(mine), by(theirs)];
  const made: WorkflowEdge[] = [];
  for (const key of new Set([...one.keys(), ...other.keys()])) {
    const isRemoved = was.has(key) && !(one.has(key) && other.has(key));
    const edge = one.get(key) ?? other.get(key);
    const isKnown = edge && kept.has(edge.source) && kept.has(edge.target);
    if (edge && isKnown && !isRemoved) made.push(edge);
  }
  return made;
}

/** Whether two values are the same JSON; the order of keys does not matter. */
export function same(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || !one || !other) return false;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const a = one as Record<string, unknown>;
  const b = other as Record<string, unknown>;
  const keys = Object.keys(a);
  return (
    keys.length === Object.keys(b).length &&
    keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]))
  );
}
