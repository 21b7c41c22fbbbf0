import { expect, test } from "vitest";
import { type History, newHistory, record, redo, undo } from "../history";
import { arrows, chain, node } from "../sample.test-data";
import { edgeKeys, everyNode, findNode, parentOf, placedById, type Workflow } from "../workflow";
import type { Command } from "./command";
import { edit } from "./edit";
import { crossing } from "./grouping";

const LOOP = node("loop-1", "loop", { children: [] });

function where(workflow: Workflow, id: string): string {
  return parentOf(placedById(workflow).get(id));
}

test("a group takes the edges of what it wraps, and ungrouping gives them back", () => {
  const before = chain("start", "a", "b", "end");
  const grouped = edit(before, { do: "group", nodes: ["b", "a"], container: LOOP, exit: "next" });
  expect(arrows(grouped)).toEqual(["a.next>b", "loop-1.next>end", "start.next>loop-1"]);
  expect(findNode(grouped, "loop-1")?.children?.map(({ id }) => id)).toEqual(["a", "b"]);
  const exits = { a: "next", b: "next" };
  const after = edit(grouped, { do: "ungroup", node: "loop-1", exits });
  expect(arrows(after)).toEqual(arrows(before));
  expect(findNode(after, "a")?.position).toEqual(findNode(before, "a")?.position);
});

test("a group inside a group inside a group", () => {
  let made = chain("start", "a", "end");
  for (const id of ["one", "two", "three"]) {
    made = edit(made, { do: "group", nodes: ["a"], container: { ...LOOP, id }, exit: "next" });
  }
  expect(
    placedById(made)
      .get("a")
      ?.parents.map(({ id }) => id),
  ).toEqual(["one", "two", "three"]);
  expect(arrows(made)).toEqual(["one.next>end", "start.next>one"]);
  made = edit(made, { do: "ungroup", node: "two", exits: { three: "next" } });
  expect(
    placedById(made)
      .get("a")
      ?.parents.map(({ id }) => id),
  ).toEqual(["one", "three"]);
});

test("edges into the middle of a group are named before they are cut", () => {
  const before = edit(chain("start", "a", "b", "end"), {
    do: "connect",
    source: "start",
    handle: "other",
    target: "b",
  });
  const { cut, entry } = crossing(before, ["a", "b"]);
  expect(entry).toBe("a");
  expect(cut.map((edge) => `${edge.source}>${edge.target}`)).toEqual(["start>b"]);
});

test("a node that leaves a container is bridged, and keeps no edge across the border", () => {
  const wrapped = edit(chain("start", "a", "b", "c", "end"), {
    do: "group",
    nodes: ["a", "b", "c"],
    container: LOOP,
    exit: "next",
  });
  const out = edit(wrapped, {
    do: "adopt",
    nodes: ["b"],
    parent: "",
    positions: { b: { x: 9, y: 9 } },
  });
  expect(where(out, "b")).toBe("");
  expect(arrows(out)).toEqual(["a.next>c", "loop-1.next>end", "start.next>loop-1"]);
  const back = edit(out, { do: "adopt", nodes: ["b"], parent: "loop-1", positions: {} });
  expect(where(back, "b")).toBe("loop-1");
});

test("a container does not go into itself or into what is inside it", () => {
  const inner = node("inner", "loop", { children: [] });
  const nested = { ...chain("start"), nodes: [node("outer", "loop", { children: [inner] })] };
  for (const parent of ["outer", "inner"]) {
    const made = edit(nested, { do: "adopt", nodes: ["outer"], parent, positions: {} });
    expect(made.nodes.map(({ id }) => id)).toEqual(["outer"]);
  }
});

test("a renamed node takes edges and references with it", () => {
  const before = chain("start", "a", "b");
  const config = {
    prompt: `{{a.stdout}} {{ab.stdout}} ${"$"}{{a.x}} \\{{a.y}} {{ a }}`,
    list: ["{{a.z}}"],
  };
  const told = edit(before, { do: "configure", node: "b", config });
  const after = edit(told, { do: "rename", node: "a", to: "writer" });
  expect(findNode(after, "b")?.config).toEqual({
    prompt: `{{writer.stdout}} {{ab.stdout}} ${"$"}{{a.x}} \\{{a.y}} {{ writer }}`,
    list: ["{{writer.z}}"],
  });
  expect(arrows(after)).toEqual(["start.next>writer", "writer.next>b"]);
  expect(edit(after, { do: "rename", node: "b", to: "writer" })).toBe(after);
});

test("a handle leads to one node", () => {
  const before = chain("start", "a", "b");
  const after = edit(before, { do: "connect", source: "start", handle: "next", target: "b" });
  expect(arrows(after)).toEqual(["a.next>b", "start.next>b"]);
});

test("what is removed goes with what is inside it and its edges", () => {
  const wrapped = edit(chain("start", "a", "end"), {
    do: "group",
    nodes: ["a"],
    container: LOOP,
    exit: "next",
  });
  const after = edit(wrapped, { do: "remove", nodes: ["loop-1"] });
  expect([...everyNode(after.nodes)].map(({ node: each }) => each.id)).toEqual(["start", "end"]);
  expect(after.edges).toEqual([]);
});

/** A small generator of numbers, so that a failure can be repeated. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}

function anyCommand(workflow: Workflow, random: (below: number) => number, at: number): Command {
  const ids = [...everyNode(workflow.nodes)].map(({ node: each }) => each.id);
  const pick = () => ids[random(ids.length)] ?? "";
  const position = { x: random(900), y: random(900) };
  const frames = [...everyNode(workflow.nodes)].filter(({ node: each }) => each.children);
  const frame = frames.length ? (frames[random(frames.length)]?.node.id ?? "") : "";
  const id = `n${at}`;
  const all: Command[] = [
    { do: "add", nodes: [node(id, "agent", { position })], parent: frame },
    { do: "remove", nodes: [pick()] },
    { do: "remove", edges: edgeKeys(workflow.edges).slice(0, 1) },
    { do: "move", positions: { [pick()]: position } },
    { do: "adopt", nodes: [pick(), pick()], parent: random(2) ? frame : "", positions: {} },
    { do: "configure", node: pick(), config: { prompt: `{{${pick()}.stdout}}` } },
    { do: "label", node: pick(), label: `label ${at}` },
    { do: "rename", node: pick(), to: id },
    { do: "connect", source: pick(), handle: random(4) ? "next" : "error", target: pick() },
    { do: "group", nodes: [pick(), pick()], container: { ...LOOP, id }, exit: "next" },
    { do: "ungroup", node: frame, exits: Object.fromEntries(ids.map((each) => [each, "next"])) },
  ];
  return all[random(all.length)] as Command;
}

test.each([1, 2, 3, 4, 5, 6, 7, 8])("random edits, undone, give the same document (%i)", (seed) => {
  const random = numbers(seed);
  const first = chain("start", "a", "b", "c", "end");
  const text = JSON.stringify(first);
  let history: History = newHistory(first);
  const texts = [text];
  for (let at = 0; at < 120; at += 1) {
    const next = edit(history.present, anyCommand(history.present, random, at));
    const ids = [...everyNode(next.nodes)].map(({ node: each }) => each.id);
    expect(new Set(ids).size).toBe(ids.length);
    if (next === history.present) continue;
    history = record(history, next, at * 10_000);
    texts.push(JSON.stringify(next));
  }
  for (const wanted of texts.slice(0, -1).reverse()) {
    history = undo(history);
    expect(JSON.stringify(history.present)).toBe(wanted);
  }
  expect(undo(history)).toBe(history);
  for (const wanted of texts.slice(1)) {
    history = redo(history);
    expect(JSON.stringify(history.present)).toBe(wanted);
  }
});
