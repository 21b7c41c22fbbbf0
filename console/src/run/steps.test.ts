import { expect, test } from "vitest";
import type { RunMessage } from "../api/feed/messages";
import { StepList } from "./steps";
import { step } from "./steps.test-data";

function message(type: string, seq: number, path: string, more: object = {}): RunMessage {
  const common = { runId: "r", correlationId: "c", nodeId: path, nodeType: "command" };
  return { type, seq, time: seq, stepPath: path, ...common, ...more } as unknown as RunMessage;
}

const HISTORY = [
  message("node_started", 1, "a", { resolvedConfig: {} }),
  message("node_finished", 2, "a", { branch: "next", outputs: { costUsd: 0.5 }, durationMs: 1 }),
  message("node_started", 3, "b", { resolvedConfig: {} }),
  message("node_waiting", 4, "b", { until: 99, reason: "limit" }),
  message("error", 5, "b", { message: "no" }),
  message("node_finished", 5, "b", { branch: "error", outputs: {}, durationMs: 2 }),
];

test("messages make the same steps as the server", () => {
  const list = new StepList();
  for (const each of HISTORY) list.apply(each);
  expect(list.steps).toMatchObject([
    { path: "a", state: "succeeded", handle: "next", costUsd: 0.5 },
    { path: "b", state: "failed", handle: "error", error: "no", waitUntil: null },
  ]);
});

test("messages that the server's rows know already change nothing", () => {
  const list = new StepList();
  const rows = [
    step("a", { seq: 1, startedAt: 1, costUsd: 0.5 }),
    step("b", { seq: 3, startedAt: 3, state: "failed", error: "no" }),
  ];
  list.load(rows);
  for (const each of HISTORY) expect(list.apply(each)).toBe(false);
  expect(list.steps).toEqual(rows);
});

test("a step that begins again after a crash stays one step", () => {
  const list = new StepList();
  list.apply(message("node_started", 1, "a", { resolvedConfig: {} }));
  list.apply(message("node_started", 10_001, "a", { resolvedConfig: {} }));
  expect(list.steps).toMatchObject([{ path: "a", seq: 1, attempt: 2, state: "running" }]);
});
