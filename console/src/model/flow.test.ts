import { expect, test } from "vitest";
import { flowEdges, flowNodes, frameAt, readingOrder } from "./flow";
import { handlesOf, summaryOf } from "./kinds";
import { chain, KINDS, node } from "./sample.test-data";

const leaf = node("leaf", "agent", { position: { x: 40, y: 60 } });
const inner = node("inner", "loop", { position: { x: 50, y: 60 }, children: [leaf] });
const outer = node("outer", "parallel", { position: { x: 100, y: 100 }, children: [inner] });
const nested = { ...chain("start", "end"), nodes: [...chain("start", "end").nodes, outer] };

test("every drawn node has a size, and comes after the frame it is in", () => {
  const drawn = flowNodes(nested, KINDS);
  expect(drawn.map(({ id, parentId }) => [id, parentId])).toEqual([
    ["start", undefined],
    ["end", undefined],
    ["outer", undefined],
    ["inner", "outer"],
    ["leaf", "inner"],
  ]);
  for (const each of drawn) expect(each.width * each.height).toBeGreaterThan(0);
});

test("the innermost frame at a point is found, but not one that is moved itself", () => {
  const inside = { x: 100 + 50 + 60, y: 100 + 60 + 50 };
  expect(frameAt(nested, KINDS, inside, new Set())).toBe("inner");
  expect(frameAt(nested, KINDS, inside, new Set(["inner"]))).toBe("outer");
  expect(frameAt(nested, KINDS, { x: 5_000, y: 5_000 }, new Set())).toBe("");
});

test("an edge to a node that does not exist is not drawn", () => {
  const lost = { ...nested, edges: [...nested.edges, { source: "end", target: "nowhere" }] };
  expect(flowEdges(lost, KINDS).map(({ source, target }) => [source, target])).toEqual([
    ["start", "end"],
  ]);
});

test("nodes are read along their edges, frames with what is inside them", () => {
  const workflow = { ...chain("start", "a", "b"), nodes: chain("b", "a", "start").nodes };
  expect(readingOrder(workflow, KINDS)).toEqual(["start", "a", "b"]);
  expect(readingOrder(nested, KINDS)).toEqual(["start", "end", "outer", "inner", "leaf"]);
});

test("handles follow the configuration, and a card says what is chosen", () => {
  expect(handlesOf(node("p", "parallel", { config: { mode: "race" } }), KINDS)).toEqual([
    "first_done",
    "error",
  ]);
  expect(handlesOf(node("p", "parallel"), KINDS)).toEqual(["all_done", "error"]);
  const config = { kind: "command", command: { cmd: "npm test" }, sentinel: { pattern: "x" } };
  expect(summaryOf(node("c", "condition", { config }), KINDS)).toBe("command · npm test");
  expect(handlesOf(node("w", "weather"), KINDS)).toEqual(["next", "error"]);
});
