import { expect, test } from "vitest";
import type { Worker } from "../../api/generated";
import { hasOneProcess, sorted, stateOf } from "./states";

const server: Worker = {
  id: "i-1",
  kind: "serve",
  state: "alive",
  host: "here",
  pid: 1,
  labels: [],
  capacity: 4,
  liveRuns: 0,
  startedAt: 1,
  heartbeatAt: 2,
};

test("a process is held if it would take runs and none is started", () => {
  expect(stateOf(server, "the budget is spent")).toBe("held");
  expect(stateOf(server, "")).toBe("alive");
  expect(stateOf({ ...server, capacity: 0 }, "the budget is spent")).toBe("alive");
  expect(stateOf({ ...server, state: "dead" }, "the budget is spent")).toBe("dead");
});

test("what is wrong comes first, then the oldest", () => {
  const frozen: Worker = { ...server, id: "i-2", state: "frozen", startedAt: 5 };
  const older: Worker = { ...server, id: "i-3", startedAt: 0 };
  expect(sorted([server, older, frozen]).map((each) => each.id)).toEqual(["i-2", "i-3", "i-1"]);
});

test("a server alone is one process; with a worker it is not", () => {
  expect(hasOneProcess([server])).toBe(true);
  expect(hasOneProcess([server, { ...server, id: "i-2", kind: "worker" }])).toBe(false);
});
