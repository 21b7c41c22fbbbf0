import { expect, test } from "vitest";
import { flowEdges, flowNodes } from "./flow";
import { folded } from "./fold";
import { chain, KINDS, node } from "./sample.test-data";
import type { Workflow } from "./workflow";

const inner = node("inner", "loop", { children: [node("x"), node("y")] });
const outer = node("outer", "loop", { children: [inner, node("w")] });
const workflow: Workflow = {
  ...chain("start", "end"),
  nodes: [node("start", "start"), outer, node("end", "end")],
  edges: [
    { source: "start", target: "outer" },
    { source: "inner", target: "w" },
    { source: "x", target: "y" },
    { source: "outer", target: "end" },
  ],
};

function drawn(...frames: string[]) {
  const made = folded(flowNodes(workflow, KINDS), flowEdges(workflow, KINDS), new Set(frames));
  return {
    nodes: made.nodes.map((each) => each.id),
    edges: made.edges.map((each) => `${each.source} ${each.target}`),
    heights: made.nodes.filter((each) => frames.includes(each.id)).map((each) => each.height),
  };
}

test("a folded frame hides what is inside it, at any depth, and its edges", () => {
  expect(drawn("outer").nodes).toEqual(["start", "outer", "end"]);
  expect(drawn("outer").edges).toEqual(["start outer", "outer end"]);
  expect(drawn("inner").nodes).toEqual(["start", "outer", "inner", "w", "end"]);
  expect(drawn("inner").edges).toEqual(["start outer", "inner w", "outer end"]);
  expect(drawn("inner").heights[0]).toBeLessThan(40);
  expect(drawn().nodes).toHaveLength(7);
});
