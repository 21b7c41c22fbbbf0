import { expect, test } from "vitest";
import { smallestChange } from "./change";

const PAIRS: [string, string][] = [
  ["", "abc"],
  ["abc", ""],
  ["aaa", "aa"],
  ["aa", "aaa"],
  ["one two three", "one 2 three"],
  ["abab", "ab"],
  ["{{a}} {{b}}", "{{a}} {{a}} {{b}}"],
];

test.each(PAIRS)("%j becomes %j by one change", (before, after) => {
  const change = smallestChange(before, after);
  expect(change).not.toBeNull();
  if (!change) return;
  expect(before.slice(0, change.from) + change.insert + before.slice(change.to)).toBe(after);
});

test("only the part that differs is replaced", () => {
  expect(smallestChange("one two three", "one 2 three")).toEqual({ from: 4, to: 7, insert: "2" });
  expect(smallestChange("same", "same")).toBeNull();
});
