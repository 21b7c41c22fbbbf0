import { expect, test } from "vitest";
import { daysBetween, heights } from "./heights";

test("the tallest bar fills the space and nothing that exists vanishes", () => {
  expect(heights([[10, 10], [5, 0], [0.001]], 20)).toEqual([[10, 10], [5, 0], [1]]);
  expect(heights([[0], []], 20)).toEqual([[0], []]);
});

test("days without runs are in the list too", () => {
  const days = daysBetween(new Date("2026-02-27T23:00Z"), new Date("2026-03-01T00:30Z"));
  expect(days).toEqual(["2026-02-27", "2026-02-28", "2026-03-01"]);
});
