import { expect, test } from "vitest";
import type { RunSummary } from "../api/generated";
import { withNewest, withOlder } from "./merge";

const run = (number: number, status = "succeeded") =>
  ({ runId: `r${number}`, startedAt: number, status }) as RunSummary;
const ids = (runs: RunSummary[]) => runs.map((each) => each.runId).join(" ");

test("new runs come to the front and older pages stay", () => {
  const stock = withOlder({ runs: [run(9), run(8)], next: "8" }, [run(7), run(6)], "6");
  const now = withNewest(stock, [run(10), run(9)], "9");
  expect(ids(now.runs)).toBe("r10 r9 r8 r7 r6");
  expect(now.next).toBe("6");
});

test("a run that no longer fits the filter leaves the list", () => {
  const stock = { runs: [run(9), run(8), run(7)], next: "7" };
  expect(ids(withNewest(stock, [run(9), run(7)], "7").runs)).toBe("r9 r7");
  expect(withNewest(stock, [], null)).toEqual({ runs: [], next: null });
});

test("a gap starts the list anew, and a page twice is shown once", () => {
  const stock = { runs: [run(3), run(2)], next: "2" };
  expect(withNewest(stock, [run(9), run(8)], "8")).toEqual({ runs: [run(9), run(8)], next: "8" });
  expect(ids(withOlder(stock, [run(2), run(1)], null).runs)).toBe("r3 r2 r1");
});
