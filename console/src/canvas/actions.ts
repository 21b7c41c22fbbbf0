/** What a person can do with the chosen nodes; buttons, keys and the palette all call these. */
import { copied, fitted, fromText, toText } from "../model/clipboard";
import { crossing, groupable } from "../model/commands/grouping";
import { absolutePosition, frameAt } from "../model/flow";
import { isContainer, type Kind, mainHandle, newNode } from "../model/kinds";
import { sizeOf } from "../model/sizes";
import {
  findNode,
  freshId,
  nodeIds,
  type Point,
  parentOf,
  placedById,
  type WorkflowEdge,
  type WorkflowNode,
} from "../model/workflow";
import type { Editor } from "./editor";

const STEP = 40;

/** Add a node of a type: after the chosen one, inside a chosen frame, or at a point. */
export function addNode(editor: Editor, kind: Kind, at?: Point): string {
  const { history, kinds, nodes } = editor.getState();
  const workflow = history.present;
  const taken = nodeIds(workflow);
  const id = freshId(taken, kind.isStart || kind.isEnd ? kind.type : `${kind.type}-1`);
  const node = newNode(kind, id);
  const chosen = nodes.length === 1 ? placedById(workflow).get(nodes[0] ?? "") : undefined;
  if (at) {
    const parent = frameAt(workflow, kinds, at, new Set());
    const origin = absolutePosition(workflow, parent);
    const position = inFrame({ x: at.x - origin.x, y: at.y - origin.y }, parent);
    editor.run({ do: "add", nodes: [{ ...node, position }], parent });
  } else if (chosen && isContainer(chosen.node, kinds) && kind.runs) {
    const bottom = freeSpot(chosen.node.children ?? [], editor);
    editor.run({ do: "add", nodes: [{ ...node, position: bottom }], parent: chosen.node.id });
  } else if (chosen && kind.runs) {
    const { x, y } = chosen.node.position ?? { x: 0, y: 0 };
    const position = { x: x + sizeOf(chosen.node, kinds).width + STEP, y };
    const handle = mainHandle(chosen.node, kinds);
    const isFree = !workflow.edges.some(
      (edge) => edge.source === chosen.node.id && (edge.sourceHandle ?? "next") === handle,
    );
    const edges: WorkflowEdge[] =
      handle && isFree && !kind.isStart
        ? [{ id: `e-${id}`, source: chosen.node.id, sourceHandle: handle, target: id }]
        : [];
    editor.run({ do: "add", nodes: [{ ...node, position }], edges, parent: parentOf(chosen) });
  } else {
    const low = workflow.nodes.map((each) => (each.position?.y ?? 0) + sizeOf(each, kinds).height);
    const left = Math.min(...workflow.nodes.map((each) => each.position?.x ?? 0), 0);
    const position = { x: left, y: low.length ? Math.max(...low) + STEP : 0 };
    editor.run({ do: "add", nodes: [{ ...node, position }] });
  }
  editor.select([id]);
  return id;
}

function freeSpot(children: readonly WorkflowNode[], editor: Editor): Point {
  const { kinds } = editor.getState();
  const last = children.at(-1);
  if (!last) return { x: 24, y: 48 };
  const { x, y } = last.position ?? { x: 24, y: 48 };
  return { x: x + sizeOf(last, kinds).width + STEP, y };
}

/** Keep a place inside a frame off its border and heading. */
export function inFrame(at: Point, parent: string): Point {
  const [x, y] = [Math.round(at.x), Math.round(at.y)];
  return parent ? { x: Math.max(12, x), y: Math.max(40, y) } : { x, y };
}

/** The edges that grouping the chosen nodes would cut. */
export function cutByGrouping(editor: Editor): WorkflowEdge[] {
  const { history, nodes } = editor.getState();
  return crossing(history.present, groupable(history.present, nodes)).cut;
}

export function group(editor: Editor, kind: Kind): void {
  const { history, kinds, nodes } = editor.getState();
  const id = freshId(nodeIds(history.present), `${kind.type}-1`);
  const container = newNode(kind, id);
  editor.run({ do: "group", nodes: [...nodes], container, exit: mainHandle(container, kinds) });
  if (findNode(editor.getState().history.present, id)) editor.select([id]);
}

/** Take away the chosen frame, or the frame around the chosen node. */
export function ungroup(editor: Editor): void {
  const { history, kinds, nodes } = editor.getState();
  const placed = placedById(history.present).get(nodes[0] ?? "");
  if (!placed) return;
  const frame = isContainer(placed.node, kinds) ? placed.node : placed.parents.at(-1);
  if (!frame) return;
  const children = frame.children ?? [];
  const exits = Object.fromEntries(children.map((child) => [child.id, mainHandle(child, kinds)]));
  editor.run({ do: "ungroup", node: frame.id, exits });
  editor.select(children.map((child) => child.id));
}

export function remove(editor: Editor): void {
  const { nodes, edges } = editor.getState();
  editor.run({ do: "remove", nodes: [...nodes], edges: [...edges] });
}

export function selectAll(editor: Editor): void {
  editor.select([...nodeIds(editor.getState().history.present)]);
}

export function nudge(editor: Editor, by: Point): void {
  const { history, nodes } = editor.getState();
  const placed = placedById(history.present);
  const positions = Object.fromEntries(
    nodes.flatMap((id) => {
      const each = placed.get(id);
      if (!each || each.parents.some((parent) => nodes.includes(parent.id))) return [];
      const { x, y } = each.node.position ?? { x: 0, y: 0 };
      return [[id, inFrame({ x: x + by.x, y: y + by.y }, parentOf(each))]];
    }),
  );
  editor.run({ do: "move", positions }, `move ${nodes.join(" ")}`);
}

/** Move the chosen nodes into a frame, beside what is there; to the top level if it is empty. */
export function moveInto(editor: Editor, parent: string): void {
  const { history, nodes, kinds } = editor.getState();
  const workflow = history.present;
  const beside = parent ? (findNode(workflow, parent)?.children ?? []) : workflow.nodes;
  let { x, y } = parent ? freeSpot(beside, editor) : { x: 0, y: 0 };
  if (!parent) {
    const low = beside.map((each) => (each.position?.y ?? 0) + sizeOf(each, kinds).height);
    y = Math.max(0, ...low) + STEP;
  }
  const positions: Record<string, Point> = {};
  for (const id of nodes) {
    const node = findNode(workflow, id);
    positions[id] = { x, y };
    if (node) x += sizeOf(node, kinds).width + STEP;
  }
  editor.run({ do: "adopt", nodes: [...nodes], parent, positions });
}

export function copyText(editor: Editor): string {
  const { history, nodes } = editor.getState();
  return nodes.length ? toText(copied(history.present, nodes)) : "";
}

/** Paste nodes from text; say whether the text held any. */
export function paste(editor: Editor, text: string, at?: Point): boolean {
  const what = fromText(text);
  if (!what?.nodes.length) return false;
  const { history, kinds, nodes } = editor.getState();
  const workflow = history.present;
  const chosen = nodes.length === 1 ? placedById(workflow).get(nodes[0] ?? "") : undefined;
  const intoFrame = chosen && isContainer(chosen.node, kinds) && !at;
  const parent = intoFrame ? chosen.node.id : "";
  const spot = intoFrame ? freeSpot(chosen.node.children ?? [], editor) : at;
  const fit = fitted(workflow, what, spot);
  editor.run({ do: "add", ...fit, parent });
  editor.select(fit.nodes.map((node) => node.id));
  return true;
}

/** Copy the chosen nodes beside themselves. */
export function duplicate(editor: Editor): void {
  const { history, nodes } = editor.getState();
  if (!nodes.length) return;
  const what = copied(history.present, nodes);
  const fit = fitted(history.present, what);
  const parent = parentOf(placedById(history.present).get(what.nodes[0]?.id ?? ""));
  editor.run({ do: "add", ...fit, parent });
  editor.select(fit.nodes.map((node) => node.id));
}
