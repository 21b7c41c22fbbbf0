import { expect, test } from "vitest";
import { lanesOf, ticksOf } from "../timeline/lanes";
import { visits } from "./graphStates";
import { NOTHING_OPENED, outline } from "./outline";
import { isWithin } from "./paths";
import { loop, step } from "./steps.test-data";
import { outcomeOf, roundsOf, totalsOf, treeOf } from "./tree";
import { nextFailure, otherRound } from "./walk";

test("steps become a tree of loops, rounds, branches and calls", () => {
  const [first, fix, both, call] = treeOf([
    step("start"),
    ...loop("fix", 2),
    step("both"),
    step("both{left}/a"),
    step("both{right}/b"),
    step("call"),
    step("call/inner[1]/x"),
  ]);
  expect(first?.children).toEqual([]);
  expect(fix?.children.map((each) => each.label)).toEqual(["round 1", "round 2"]);
  expect(both?.children.map((each) => [each.kind, each.label])).toEqual([
    ["branch", "left"],
    ["branch", "right"],
  ]);
  expect(call?.children[0]?.children[0]?.path).toBe("call/inner[1]");
});

test("rounds tell how they ended, and a loop what it cost and changed", () => {
  const [fix] = treeOf(loop("fix", 3, [2]));
  expect(fix && roundsOf(fix).map(outcomeOf)).toEqual(["not-met", "failed", "met"]);
  expect(fix && totalsOf(fix, 0)).toMatchObject({ insertions: 6, deletions: 3, hasChanges: true });
  expect(fix && totalsOf(fix, 0).costUsd).toBeCloseTo(0.3);
});

test("the middle of many rounds is folded, but never a failure or what is chosen", () => {
  const tree = treeOf(loop("fix", 40, [20]));
  const lines = outline(tree, NOTHING_OPENED, "fix[30]/agent");
  const folds = lines.flatMap((line) => (line.kind === "fold" ? [[line.from, line.to]] : []));
  expect(folds).toEqual([
    [4, 19],
    [21, 29],
    [31, 34],
  ]);
  const shown = lines.flatMap((line) => (line.kind === "item" ? [line.item.path] : []));
  expect(shown).toContain("fix[20]/check");
  expect(shown).toContain("fix[30]/agent");
  const all = outline(tree, { by: new Map(), unfolded: new Set(["fix"]) });
  expect(all.filter((line) => line.kind === "fold")).toEqual([]);
});

test("there is a lane for the run, and for each round and branch", () => {
  const tree = treeOf([...loop("fix", 2), step("both"), step("both{l}/a"), step("both{r}/b")]);
  const lanes = lanesOf(tree, 0, new Set());
  expect(lanes.map((lane) => lane.label)).toEqual(["run", "r1", "r2", "l", "r"]);
  expect(lanes[1]?.bars.map((bar) => bar.label)).toEqual(["agent", "check"]);
  expect(lanesOf(treeOf(loop("fix", 40)), 0, new Set())).toHaveLength(11);
});

test("an axis has about one tick for each 90 pixels", () => {
  expect(ticksOf(10_000, 900)).toEqual([0, 1e3, 2e3, 3e3, 4e3, 5e3, 6e3, 7e3, 8e3, 9e3, 1e4]);
});

test("keys go to the same step of another round, and from failure to failure", () => {
  const steps = loop("fix", 3, [1, 3]);
  expect(otherRound(steps, "fix[1]/agent", 1)).toBe("fix[2]/agent");
  expect(otherRound(steps, "fix[3]", 1)).toBe("fix[3]");
  expect(nextFailure(steps, "")).toBe("fix[1]/check");
  expect(nextFailure(steps, "fix[1]/check")).toBe("fix[3]/check");
  expect(nextFailure(steps, "fix[3]/check")).toBe("fix[1]/check");
});

test("a graph shows the chosen round, else what runs, else what failed", () => {
  const steps = loop("fix", 3, [2]);
  expect(visits(steps, "fix[1]/agent").get("check")?.path).toBe("fix[1]/check");
  expect(visits(steps, "").get("check")?.path).toBe("fix[2]/check");
  const live = step("fix[4]/check", { state: "running" });
  expect(visits([...steps, live], "").get("check")).toBe(live);
});

test("a path is within its round, and not within one that begins the same", () => {
  expect(isWithin("fix[1]/a", "fix[1]")).toBe(true);
  expect(isWithin("fix[10]/a", "fix[1]")).toBe(false);
  expect(isWithin("fix-2", "fix")).toBe(false);
  expect(isWithin("both{l}/a", "both")).toBe(true);
});
