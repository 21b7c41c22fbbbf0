import { expect, test } from "vitest";
import type { Json } from "../api/generated";
import { isCut } from "./whole";

const asked = (details: { [key: string]: Json }, title = "tidy wants to delete: build/") => ({
  title,
  details,
});

test("a question of which nothing is missing is whole", () => {
  expect(
    isCut(asked({ kind: "delete", rawInput: { path: "build/", deep: [1, null, true] } })),
  ).toBe(false);
  expect(isCut(asked({ omitted: "this is a field", kind: "other" }))).toBe(false);
});

test.each<[string, { [key: string]: Json }, string?]>([
  ["a long title", {}, "rm … (12 more characters)"],
  ["a long text", { command: "echo … (9000 more characters)" }],
  ["a long text deep inside", { rawInput: { list: ["a… (1 more characters)"] } }],
  ["many members", { rawInput: { a: 1, "…": "3 more members" } }],
  ["a long list", { list: ["a", "… 12 more members"] }],
  ["a deep value", { rawInput: { a: "[dict, not shown]" } }],
  ["all details", { omitted: "20000 characters of details, too many to keep" }],
])("%s that the server has cut is noticed", (_, details, title) => {
  expect(isCut(asked(details, title))).toBe(true);
});
