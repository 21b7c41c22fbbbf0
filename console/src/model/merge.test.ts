import { expect, test } from "vitest";
import { edit } from "./commands/edit";
import { merge } from "./merge";
import { arrows, chain, node } from "./sample.test-data";
import { findNode, type Workflow } from "./workflow";

const BASE = chain("start", "a", "b", "end");
const configured = (workflow: Workflow, id: string, prompt: string) =>
  edit(workflow, { do: "configure", node: id, config: { prompt } });

test("changes of different nodes are both kept", () => {
  const mine = edit(configured(BASE, "a", "mine"), { do: "add", nodes: [node("new-1")] });
  const theirs = {
    ...edit(configured(BASE, "b", "theirs"), { do: "remove", edges: ["a next b"] }),
    version: 7,
  };
  const { workflow, clashes } = merge(BASE, mine, theirs);
  expect(clashes).toEqual([]);
  expect(findNode(workflow, "a")?.config).toEqual({ prompt: "mine" });
  expect(findNode(workflow, "b")?.config).toEqual({ prompt: "theirs" });
  expect(findNode(workflow, "new-1")).toBeDefined();
  expect(arrows(workflow)).toEqual(["b.next>end", "start.next>a"]);
  expect(workflow.version).toBe(7);
});

test("a node that both changed is asked for, and the choice is taken", () => {
  const mine = configured(BASE, "a", "mine");
  const theirs = configured(BASE, "a", "theirs");
  const { clashes } = merge(BASE, mine, theirs);
  expect(clashes.map(({ key }) => key)).toEqual(["node:a"]);
  const chosen = merge(BASE, mine, theirs, { "node:a": "theirs" });
  expect(findNode(chosen.workflow, "a")?.config).toEqual({ prompt: "theirs" });
});

test("a node that one removed and the other changed is asked for", () => {
  const mine = edit(BASE, { do: "remove", nodes: ["a"] });
  const theirs = configured(BASE, "a", "theirs");
  expect(merge(BASE, mine, theirs).clashes.map(({ key }) => key)).toEqual(["node:a"]);
  const removed = merge(BASE, mine, BASE);
  expect(removed.clashes).toEqual([]);
  expect(findNode(removed.workflow, "a")).toBeUndefined();
});

test("a moved node and a changed node are one node", () => {
  const loop = node("loop-1", "loop", { children: [] });
  const base = edit(BASE, { do: "add", nodes: [loop] });
  const mine = edit(base, { do: "adopt", nodes: ["a"], parent: "loop-1", positions: {} });
  const theirs = configured(base, "a", "theirs");
  const { workflow, clashes } = merge(base, mine, theirs);
  expect(clashes).toEqual([]);
  expect(findNode(workflow, "loop-1")?.children?.[0]?.config).toEqual({ prompt: "theirs" });
});

test("two containers that were moved into each other do not vanish", () => {
  const two = ["one", "two"].map((id) => node(id, "loop", { children: [] }));
  const base: Workflow = { ...BASE, nodes: two };
  const into = (id: string, parent: string) =>
    edit(base, { do: "adopt", nodes: [id], parent, positions: {} });
  const { workflow } = merge(base, into("one", "two"), into("two", "one"));
  expect(findNode(workflow, "one")).toBeDefined();
  expect(findNode(workflow, "two")).toBeDefined();
});
