import { expect, test } from "vitest";
import { nodeRuns } from "./runStates";

const step = (path: string, nodeId: string, state = "succeeded") => ({ path, nodeId, state });

test("a node has the state of its newest step, and a loop its rounds", () => {
  const runs = nodeRuns([
    step("start", "start"),
    step("fix", "fix", "running"),
    step("fix[1]/agent", "agent"),
    step("fix[1]/check", "check"),
    step("fix[2]/agent", "agent", "failed"),
    step("fix[3]/agent", "agent", "running"),
  ]);
  expect(runs.get("agent")).toEqual({ state: "running" });
  expect(runs.get("fix")).toEqual({
    state: "running",
    rounds: ["not-met", "failed", "running"],
  });
});

test("nodes of a called workflow paint nothing", () => {
  const runs = nodeRuns([step("call/agent", "agent"), step("both{left}/x", "x")]);
  expect([...runs.keys()]).toEqual(["x"]);
});
