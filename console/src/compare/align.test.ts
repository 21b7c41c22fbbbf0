import { expect, test } from "vitest";
import type { Step } from "../run/steps";
import { loop, step } from "../run/steps.test-data";
import { align, type Exchange, firstDivergence } from "./align";

const side = (steps: Step[], exchanges: [string, Exchange][] = []) => ({
  steps,
  exchanges: new Map(exchanges),
});

test("steps are aligned by path, those of one run alone in their place", () => {
  const rows = align(
    side([step("a"), step("b"), step("d")]),
    side([step("a"), step("c"), step("d"), step("e")]),
  );
  expect(rows.map((row) => [row.path, row.difference])).toEqual([
    ["a", ""],
    ["b", "only in A"],
    ["c", "only in B"],
    ["d", ""],
    ["e", "only in B"],
  ]);
});

test("the first divergence is the step inside a loop, not the loop", () => {
  const [a, b] = [loop("fix", 2), loop("fix", 3)];
  a[0] = { ...(a[0] as Step), handle: "exhausted" };
  expect(firstDivergence(align(side(a), side(b)))?.path).toBe("fix[2]/check");
  expect(firstDivergence(align(side(a), side(a)))).toBeNull();
});

test("values decide where outcomes are the same; what always differs does not count", () => {
  const exchange = (stdout: string, durationMs: number): [string, Exchange][] => [
    ["a", { config: {}, outputs: { stdout, durationMs } }],
  ];
  const same = align(side([step("a")], exchange("x", 1)), side([step("a")], exchange("x", 2)));
  expect(same[0]?.difference).toBe("");
  const other = align(side([step("a")], exchange("x", 1)), side([step("a")], exchange("y", 1)));
  expect(other[0]?.difference).toBe("outputs differ: stdout");
});
