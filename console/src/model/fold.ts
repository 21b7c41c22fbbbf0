/** Frames that are folded: only their heading is drawn. */
import { FRAME_HEADER } from "./commands/grouping";
import { type FlowEdge, type FlowNode, sized } from "./flow";

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
    const data = { ...node.data, isEmpty: false, isFolded: true };
    const size = sized({ width: node.width, height: FRAME_HEADER + 2 }, data);
    return [{ ...node, ...size, data }];
  });
  const isShown = (edge: FlowEdge) => !hidden.has(edge.source) && !hidden.has(edge.target);
  return { nodes: shown, edges: edges.filter(isShown) };
}
