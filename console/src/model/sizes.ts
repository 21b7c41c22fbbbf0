/** How large nodes are drawn. Every node has a size before it is drawn, so that what is out of
 * sight is left out, and so that the layout can be made without a browser. */
import { FRAME_HEADER, FRAME_PADDING } from "./commands/grouping";
import { ERROR_HANDLE, handlesOf, isContainer, type Kinds } from "./kinds";
import type { Size, WorkflowNode } from "./workflow";

export const CARD_WIDTH = 168;
const CARD_HEIGHT = 48;
const CARD_TOP = 22;
export const HANDLE_ROW = 16;
const NOTE: Size = { width: 200, height: 72 };
const EMPTY_FRAME: Size = { width: 248, height: 124 };

/** The handles at the right side of a card; `error` is at the bottom. */
export function sideHandles(node: WorkflowNode, kinds: Kinds): string[] {
  return handlesOf(node, kinds).filter((handle) => handle !== ERROR_HANDLE);
}

/** Return where a handle is, from the top of its node. */
export function handleTop(size: Size, at: number, count: number, isFrame: boolean): number {
  if (count === 1) return isFrame ? FRAME_HEADER / 2 : size.height / 2;
  const first = isFrame ? FRAME_HEADER / 2 : CARD_TOP + HANDLE_ROW / 2 + 2;
  return first + at * HANDLE_ROW;
}

export function sizeOf(node: WorkflowNode, kinds: Kinds): Size {
  if (isContainer(node, kinds)) return frameSize(node, kinds);
  if (!kinds.of(node.type).runs) return NOTE;
  const rows = sideHandles(node, kinds).length;
  const height = rows > 1 ? CARD_TOP + rows * HANDLE_ROW + 6 : CARD_HEIGHT;
  return { width: CARD_WIDTH, height: Math.max(CARD_HEIGHT, height) };
}

/** A frame is as large as its file says, and at least as large as its content. */
function frameSize(node: WorkflowNode, kinds: Kinds): Size {
  let { width, height } = EMPTY_FRAME;
  for (const child of node.children ?? []) {
    const size = sizeOf(child, kinds);
    width = Math.max(width, (child.position?.x ?? 0) + size.width + FRAME_PADDING);
    height = Math.max(height, (child.position?.y ?? 0) + size.height + FRAME_PADDING);
  }
  return {
    width: Math.max(width, node.size?.width ?? 0),
    height: Math.max(height, node.size?.height ?? 0),
  };
}
