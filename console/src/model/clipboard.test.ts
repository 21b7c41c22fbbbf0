import { expect, test } from "vitest";
import { copied, fitted, fromText, toText } from "./clipboard";
import { edit } from "./commands/edit";
import { arrows, chain, node } from "./sample.test-data";
import { everyNode, findNode } from "./workflow";

test("pasted nodes get free ids, and only their own references follow", () => {
  const config = { prompt: "{{a.stdout}} and {{start.x}}" };
  const from = edit(chain("start", "a", "b", "end"), { do: "configure", node: "b", config });
  const text = toText(copied(from, ["a", "b"]));
  const read = fromText(text);
  expect(read).not.toBeNull();
  const fit = fitted(from, read ?? { nodes: [], edges: [] });
  const after = edit(from, { do: "add", ...fit });
  expect(fit.nodes.map(({ id }) => id)).toEqual(["a-2", "b-2"]);
  expect(findNode(after, "b-2")?.config).toEqual({ prompt: "{{a-2.stdout}} and {{start.x}}" });
  expect(findNode(after, "b")?.config).toEqual(config);
  expect(arrows(after)).toContain("a-2.next>b-2");
  expect(new Set(after.edges.map((edge) => edge.id)).size).toBe(after.edges.length);
});

test("a container is copied with everything in it", () => {
  const inner = node("inner", "loop", { children: [node("leaf")] });
  const from = { ...chain("start"), nodes: [node("outer", "loop", { children: [inner] })] };
  const fit = fitted(from, copied(from, ["outer", "leaf"]));
  expect([...everyNode(fit.nodes)].map(({ node: each }) => each.id)).toEqual([
    "outer-2",
    "inner-2",
    "leaf-2",
  ]);
});

test.each([
  "",
  "hello",
  "null",
  "{}",
  '{"infloop":"nodes"}',
  '{"infloop":"nodes","nodes":[{"id":1,"type":"agent"}]}',
  '{"infloop":"nodes","nodes":[{"id":"a","type":"agent","config":[]}]}',
  '{"infloop":"nodes","nodes":[],"edges":[{"source":"a"}]}',
  '{"infloop":"runs","nodes":[],"edges":[]}',
])("%j is not pasted", (text) => {
  expect(fromText(text)).toBeNull();
});
