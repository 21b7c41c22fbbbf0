/** Frames that are folded: only their heading is drawn. */
import { FRAME_HEADER } from "./commands/grouping";
import type { FlowEdge, FlowNode } from "./flow";

/** Return what is drawn while some frames are folded; nodes inside and their edges are not. */
export function folded(
  nodes: FlowNode[],
  edges: FlowEdge[],
  frames: ReadonlySet<string>,
): { nodes: FlowNode[]; edges: FlowEdge[] } {
  if (!frames.size) return { nodes, edges };
  const hidden = new Set<string>();
  const shown = nodes.flatMap((node): FlowNode[] => {
    // Containers come before what is inside them.
    const isInside = frames.has(node.parentId ?? "") || hidden.has(node.parentId ?? "");
    if (isInside) hidden.add(node.id);
    if (isInside) return [];
    if (!frames.has(node.id) || !node.data.isFrame) return [node];
    const height = FRAME_HEADER + 2;
    return [{ ...node, height, data: { ...node.data, isEmpty: false, isFolded: true } }];
  });
  const isShown = (edge: FlowEdge) => !hidden.has(edge.source) && !hidden.has(edge.target);
  return { nodes: shown, edges: edges.filter(isShown) };
}
