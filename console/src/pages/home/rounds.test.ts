import { expect, test } from "vitest";
import type { RunSummary } from "../../api/generated";
import { roundsOf } from "./rounds";

test("the rounds before the present one were not met, or the loop would have ended", () => {
  const run = { status: "running", rounds: { fix: 3 } } as unknown as RunSummary;
  expect(roundsOf(run)).toEqual(["not-met", "not-met", "running"]);
  const nested = { status: "running", rounds: { "a[2].b": 1, a: 2 } } as unknown as RunSummary;
  expect(roundsOf(nested)).toEqual(["running"]);
  expect(roundsOf({ status: "running", rounds: {} } as unknown as RunSummary)).toEqual([]);
});
