import { expect, test } from "vitest";
import { startOf } from "./since";

test("a span and a day say when a list begins; anything else is no filter", () => {
  expect(startOf("1h", 7_260_000)).toBe(3_660_000);
  expect(startOf("2026-11-17")).toBe(Date.UTC(2026, 10, 17));
  for (const wrong of ["", "soon", "7x"]) expect(startOf(wrong)).toBe(0);
});
