import { expect, test } from "vitest";
import type { Json } from "../api/generated";
import { readDuration, writeDuration } from "./duration";
import { currentRows, doubleNames, objectOf, readValue, rowsOf, writeValue } from "./rows";
import type { Schema } from "./schema";
import { isEqual, withValue } from "./values";

test.each<[Json | undefined, Schema]>([
  ["claude", { type: "string", default: "claude" }],
  ["", { type: "string", default: "claude" }],
  ["", { type: "string" }],
  [false, { type: "boolean", default: false }],
  [0, { type: "integer", default: 0 }],
  [[], { type: "array", default: [] }],
  [{}, { type: "object", default: {} }],
  [{}, { type: "object", properties: {} }],
  [undefined, { type: "string" }],
])("%j is left out where it is the default", (value, schema) => {
  expect(withValue({ a: 1, key: "old" }, "key", value, schema)).toEqual({ a: 1 });
});

test.each<[Json, Schema]>([
  ["codex", { type: "string", default: "claude" }],
  [true, { type: "boolean", default: false }],
  [false, { type: "boolean", default: true }],
  [false, { type: "boolean" }],
  [0, { type: "integer", default: 100 }],
  [[], { type: "array", items: { type: "string" } }],
])("%j is kept where it is not the default", (value, schema) => {
  expect(withValue({ a: 1 }, "key", value, schema)).toEqual({ a: 1, key: value });
});

test("values that the form does not know stay as they are", () => {
  const values = { unknown: { deep: [1, 2] }, timeoutMs: 0 };
  expect(withValue(values, "key", "x", { type: "string" })).toEqual({ ...values, key: "x" });
});

test.each<[Json, Json, boolean]>([
  [{ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] }, true],
  [{ a: 1 }, { b: 1 }, false],
  [[1], { 0: 1 }, false],
  [null, {}, false],
  [[1, 2], [1], false],
])("%j and %j are compared by content", (a, b, equal) => {
  expect(isEqual(a, b)).toBe(equal);
});

test.each<[string, number]>([
  ["250ms", 250],
  ["90s", 90_000],
  ["10m", 600_000],
  ["1h30m", 5_400_000],
  ["2h", 7_200_000],
  ["0", 0],
  ["1.5h", 5_400_000],
])("the duration %s is %d ms and comes back", (text, ms) => {
  expect(readDuration(text)).toBe(ms);
  expect(readDuration(writeDuration(ms))).toBe(ms);
});

test.each(["10", "soon", "5 parsecs", "-3m", "1h30", ""])("%j is no duration", (text) => {
  expect(readDuration(text)).toBeNull();
});

test("rows keep what is half typed, and follow a value from outside", () => {
  const typed = [
    { name: "a", value: "1" },
    { name: "", value: "x" },
  ];
  expect(objectOf(typed)).toEqual({ a: "1" });
  expect(currentRows(typed, { a: "1" })).toBe(typed);
  expect(currentRows(typed, { a: "2" })).toEqual(rowsOf({ a: "2" }));
  expect(doubleNames([...typed, { name: "a", value: "2" }])).toEqual(["a"]);
});

test.each<Json>([
  3,
  true,
  null,
  [1, "a"],
  { a: 1 },
  "3",
  "true",
  "plain",
  '"quoted"',
  "{{a.b}}",
  "[x",
])("the value %j of a row is the same after it was shown and read", (value) => {
  expect(readValue(writeValue(value, true), true)).toEqual(value);
});

test("where only texts are allowed, a number is a text", () => {
  expect(readValue("3", false)).toBe("3");
  expect(writeValue("3", false)).toBe("3");
});
