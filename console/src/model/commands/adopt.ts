/** Moving nodes into and out of containers. */
import {
  changeList,
  handleOf,
  parentOf,
  placedById,
  type Workflow,
  type WorkflowEdge,
  type WorkflowNode,
} from "../workflow";
import type { CommandOf } from "./command";
import { newEdge, without } from "./simple";

/** Move nodes into another container.
 *
 * An edge between a moved node and one that stayed behind would cross the border, so it goes; what
 * led to the moved node leads to what followed it. Edges that crossed a border before are kept.
 */
export function adopt(workflow: Workflow, command: CommandOf<"adopt">): Workflow {
  const before = placedById(workflow);
  const { parent } = command;
  const around = parent ? before.get(parent) : undefined;
  if (parent && !around) return workflow;
  const inside = new Set([parent, ...(around?.parents ?? []).map((node) => node.id)]);
  const asked = new Set(command.nodes);
  const moved = [...asked].filter((id) => {
    const placed = before.get(id);
    // A container does not fit into itself, and children move with their container.
    return placed && !inside.has(id) && !placed.parents.some((each) => asked.has(each.id));
  });
  const going = new Set(moved.filter((id) => parentOf(before.get(id)) !== parent));
  const nodes = moved.flatMap((id): WorkflowNode[] => {
    const node = before.get(id)?.node;
    const position = command.positions[id];
    return node ? [position ? { ...node, position } : node] : [];
  });
  const placedHere = new Map(nodes.map((node) => [node.id, node]));
  const emptied = { ...workflow, nodes: without(workflow.nodes, going) };
  const filled = changeList(emptied, parent, (list) => [
    ...list.map((node) => placedHere.get(node.id) ?? node),
    ...nodes.filter((node) => going.has(node.id)),
  ]);
  return { ...filled, edges: bridged(workflow, filled, going) };
}

function bridged(before: Workflow, after: Workflow, moved: ReadonlySet<string>): WorkflowEdge[] {
  const was = placedById(before);
  const is = placedById(after);
  const level = (of: typeof was, id: string) => parentOf(of.get(id));
  const isCut = (edge: WorkflowEdge) =>
    moved.has(edge.source) !== moved.has(edge.target) &&
    level(was, edge.source) === level(was, edge.target) &&
    level(is, edge.source) !== level(is, edge.target);
  const kept = after.edges.filter((edge) => !isCut(edge) && canLead(is, edge));
  for (const edge of before.edges.filter(isCut)) {
    if (!moved.has(edge.target)) continue;
    const next = follower(before, edge.target, moved);
    const isTaken = kept.some(
      (each) => each.source === edge.source && handleOf(each) === handleOf(edge),
    );
    if (next && next !== edge.source && !isTaken) {
      kept.push(newEdge(kept, edge.source, handleOf(edge), next));
    }
  }
  return kept;
}

/** The first node after moved ones, along their first edges. */
function follower(workflow: Workflow, from: string, moved: ReadonlySet<string>): string {
  const seen = new Set<string>();
  for (let id = from; moved.has(id); ) {
    if (seen.has(id)) return "";
    seen.add(id);
    id =
      workflow.edges.find((edge) => edge.source === id && handleOf(edge) !== "error")?.target ?? "";
    if (id && !moved.has(id)) return id;
  }
  return "";
}

/** Whether an edge leads to a node of the same container or of one around it. */
export function canLead(placed: ReturnType<typeof placedById>, edge: WorkflowEdge): boolean {
  const target = placed.get(edge.target);
  const source = placed.get(edge.source);
  if (!target || !source) return true; // what is wrong with it is said by the server
  const parent = parentOf(target);
  return !parent || source.parents.some((each) => each.id === parent);
}
