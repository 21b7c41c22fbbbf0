import { expect, test } from "vitest";
import { edit } from "./commands/edit";
import { flowNodes } from "./flow";
import { arranged, tidied } from "./layout";
import { chain, KINDS, node } from "./sample.test-data";
import { sizeOf } from "./sizes";
import { everyNode, type Workflow, type WorkflowNode } from "./workflow";

const ROOM = { width: 1_040, height: 780 };

function overlaps(nodes: readonly WorkflowNode[]): string[] {
  const boxes = nodes.map((each) => ({ id: each.id, ...sizeOf(each, KINDS), ...each.position }));
  return boxes.flatMap((a, at) =>
    boxes
      .slice(at + 1)
      .filter(
        (b) =>
          (a.x ?? 0) < (b.x ?? 0) + b.width &&
          (b.x ?? 0) < (a.x ?? 0) + a.width &&
          (a.y ?? 0) < (b.y ?? 0) + b.height &&
          (b.y ?? 0) < (a.y ?? 0) + a.height,
      )
      .map((b) => `${a.id} ${b.id}`),
  );
}

test("a chain of 50 is wrapped so that its text can be read in one view", () => {
  const long = chain("start", ...Array.from({ length: 48 }, (_, at) => `step-${at}`), "end");
  const nodes = tidied(long, KINDS, ROOM);
  expect(overlaps(nodes)).toEqual([]);
  const right = Math.max(
    ...nodes.map((each) => (each.position?.x ?? 0) + sizeOf(each, KINDS).width),
  );
  const low = Math.max(
    ...nodes.map((each) => (each.position?.y ?? 0) + sizeOf(each, KINDS).height),
  );
  const zoom = Math.min(ROOM.width / right, ROOM.height / low);
  expect(13 * zoom).toBeGreaterThanOrEqual(11);
});

test("containers hold their content, at any depth, and nothing overlaps", () => {
  const inner = node("inner", "loop", { children: [node("x"), node("y"), node("z")] });
  const outer = node("outer", "parallel", { children: [inner, node("w")] });
  const workflow: Workflow = {
    ...chain("start", "end"),
    nodes: [node("start", "start"), outer, node("end", "end"), node("why", "sidenote")],
    edges: [
      { source: "start", target: "outer" },
      { source: "outer", sourceHandle: "all_done", target: "end" },
      { source: "x", target: "y" },
      { source: "y", target: "z" },
      { source: "z", target: "end" },
    ],
  };
  const nodes = tidied(workflow, KINDS, ROOM);
  expect(overlaps(nodes)).toEqual([]);
  for (const { node: each } of everyNode(nodes)) {
    const size = sizeOf(each, KINDS);
    expect(overlaps(each.children ?? [])).toEqual([]);
    for (const child of each.children ?? []) {
      expect((child.position?.x ?? 0) + sizeOf(child, KINDS).width).toBeLessThan(size.width);
      expect((child.position?.y ?? 0) + sizeOf(child, KINDS).height).toBeLessThan(size.height);
      expect(child.position?.y).toBeGreaterThan(30);
    }
  }
});

test("a file without positions is laid out, one with positions is left alone", () => {
  const bare = chain("start", "a", "end");
  const unplaced = { ...bare, nodes: bare.nodes.map(({ position: _, ...rest }) => rest) };
  const made = arranged(unplaced, KINDS, ROOM);
  expect(overlaps(made.nodes)).toEqual([]);
  expect(arranged(made, KINDS, ROOM)).toBe(made);
});

test("an edit makes new drawn nodes only for what it changed", () => {
  const before = chain("start", "a", "b", "end");
  const after = edit(before, { do: "move", positions: { a: { x: 5, y: 5 } } });
  const [was, is] = [flowNodes(before, KINDS), flowNodes(after, KINDS)];
  const changed = is.filter((each, at) => each !== was[at]).map(({ id }) => id);
  expect(changed).toEqual(["a"]);
});
