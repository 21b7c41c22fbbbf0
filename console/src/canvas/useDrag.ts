/** Dragging: until nodes are let go, only the drawing knows where they are. */
import { type NodeChange, useStoreApi } from "@xyflow/react";
import { useEffect, useMemo, useRef } from "react";
import { absolutePosition, type FlowEdge, type FlowNode, frameAt } from "../model/flow";
import { type Point, parentOf, placedById } from "../model/workflow";
import { inFrame } from "./actions";
import type { Editor } from "./editor";

/** Return what follows dragged nodes, at most once a frame, and what leaves them where they are.
 *
 * Positions go to the store of the graph and not through React: else all nodes would be compared
 * again for each movement of the mouse. `nodes` are those of the document.
 */
export function useDrag(editor: Editor, nodes: FlowNode[]) {
  const store = useStoreApi<FlowNode, FlowEdge>();
  const latest = useRef(nodes);
  latest.current = nodes;
  const drag = useMemo(() => {
    const waiting = new Map<string, Point>();
    let frame = 0;
    const show = () => {
      frame = 0;
      const { nodes: shown, setNodes } = store.getState();
      setNodes(shown.map((node) => moved(node, waiting.get(node.id))));
      waiting.clear();
    };
    const forget = () => {
      cancelAnimationFrame(frame);
      frame = 0;
      waiting.clear();
    };
    return {
      follow: (changes: NodeChange<FlowNode>[]) => {
        for (const change of changes) {
          if (change.type !== "position" || !change.dragging || !change.position) continue;
          waiting.set(change.id, change.position);
        }
        if (waiting.size && !frame) frame = requestAnimationFrame(show);
      },
      drop: (dropped: FlowNode[]) => {
        forget();
        const before = editor.getState().history.present;
        leave(editor, dropped);
        // Without an edit nothing else brings the nodes back to where the document has them.
        const isSame = editor.getState().history.present === before;
        if (isSame) store.getState().setNodes(latest.current);
      },
      forget,
    };
  }, [editor, store]);
  useEffect(() => drag.forget, [drag]);
  return drag;
}

/** Above all others. `measured` says that it kept its size; else its handles are measured again. */
function moved(node: FlowNode, position: Point | undefined): FlowNode {
  if (!position) return node;
  const { width, height } = node;
  return { ...node, position, zIndex: 1_000, measured: { width, height } };
}

/** Leave dragged nodes where they were let go: in the frame below them, or out of all frames. */
function leave(editor: Editor, nodes: FlowNode[]): void {
  const { history, kinds } = editor.getState();
  const workflow = history.present;
  const placed = placedById(workflow);
  const ids = new Set(nodes.map((node) => node.id));
  const outer = nodes.filter(
    (node) => !placed.get(node.id)?.parents.some((parent) => ids.has(parent.id)),
  );
  const first = outer[0];
  if (!first) return;
  const absolute = (node: FlowNode): Point => {
    const origin = absolutePosition(workflow, parentOf(placed.get(node.id)));
    return { x: origin.x + node.position.x, y: origin.y + node.position.y };
  };
  const corner = absolute(first);
  const middle = {
    x: corner.x + first.width / 2,
    y: corner.y + (first.data.isFrame ? 16 : first.height / 2),
  };
  const parent = frameAt(workflow, kinds, middle, ids);
  const origin = absolutePosition(workflow, parent);
  const positions = Object.fromEntries(
    outer.map((node) => {
      const at = absolute(node);
      return [node.id, inFrame({ x: at.x - origin.x, y: at.y - origin.y }, parent)];
    }),
  );
  const isSame = outer.every((node) => parentOf(placed.get(node.id)) === parent);
  if (isSame) editor.run({ do: "move", positions });
  else editor.run({ do: "adopt", nodes: outer.map((node) => node.id), parent, positions });
}
