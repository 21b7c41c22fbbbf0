import { expect, test } from "vitest";
import type { RunMessage } from "../api/feed/messages";
import { chunk } from "../api/feed/messages.test-data";
import type { ToolCall } from "../api/generated";
import { RowFold } from "./rows";

function rowsOf(...messages: RunMessage[]) {
  const fold = new RowFold();
  for (const message of messages) fold.add(message);
  return fold.rows;
}

function tool(seq: number, line: string, call: Partial<ToolCall>) {
  const field = { id: "1", name: "Bash", phase: "start" as const, ...call };
  return { ...chunk(seq, line, "a"), stream: "tool", tool: field };
}

test("text is joined across its pieces, also when another step prints between them", () => {
  const rows = rowsOf(chunk(1, "he", "a"), chunk(2, "other\n", "b"), chunk(3, "llo\nnext", "a"));
  expect(rows.map((row) => [row.path, row.text])).toEqual([
    ["a", "hello"],
    ["b", "other"],
    ["a", "next"],
  ]);
});

test("stdout and stderr of one step are not joined", () => {
  const rows = rowsOf(chunk(1, "a"), { ...chunk(2, "b"), stream: "stderr" }, chunk(3, "c"));
  expect(rows.map((row) => [row.kind, row.text])).toEqual([
    ["stdout", "ac"],
    ["stderr", "b"],
  ]);
});

test("an empty line is a row, and a lone carriage return hides nothing", () => {
  expect(rowsOf(chunk(1, "a\n\nb\r\nc\rd")).map((row) => row.text)).toEqual([
    "a",
    "",
    "b",
    "c",
    "d",
  ]);
});

test("a very long line is several rows that hold all of it", () => {
  const rows = rowsOf(...Array.from({ length: 3_000 }, (_, at) => chunk(at + 1, "token ")));
  expect(rows.length).toBeGreaterThan(10);
  expect(rows.every((row) => row.text.length <= 1_000)).toBe(true);
  expect(rows.map((row) => row.text).join("")).toBe("token ".repeat(3_000));
  expect(rows.map((row) => row.isPart)).toEqual([false, ...rows.slice(1).map(() => true)]);
});

test("a tool call is one row that gets its result", () => {
  const rows = rowsOf(
    tool(1, "[tool: Bash] npm test\n", {}),
    chunk(2, "text\n", "a"),
    tool(3, "[tool result] 2 failed\n", { phase: "end", failed: true }),
  );
  expect(rows.map((row) => row.text)).toEqual(["npm test", "text"]);
  expect(rows[0]?.tool).toMatchObject({ result: "2 failed", isDone: true, failed: true });
});

test("calls that overlap keep their own results", () => {
  const rows = rowsOf(
    tool(1, "[tool: A] x\n", { id: "1", name: "A" }),
    tool(2, "[tool: B] y\n", { id: "2", name: "B" }),
    tool(3, "[tool result] of b\n", { id: "2", phase: "end" }),
    tool(4, "[tool result] of a\n", { id: "1", phase: "end" }),
  );
  expect(rows.map((row) => row.tool?.result)).toEqual(["of a", "of b"]);
});

test("tool lines of older journals are folded by their text", () => {
  const old = (seq: number, line: string) => ({ ...chunk(seq, line, "a"), stream: "tool" });
  const rows = rowsOf(old(1, "[tool: Bash] ls\n"), old(2, "[tool result] a.txt\n"));
  expect(rows).toHaveLength(1);
  expect(rows[0]?.tool).toMatchObject({ name: "Bash", result: "a.txt" });
});
