import { expect, test } from "vitest";
import { chain } from "../model/sample.test-data";
import { fromJson, lineOf, TextProblem } from "./textDocument";

const NOW = chain("start", "a");

test.each([
  ["{", undefined],
  ['{"id": "sample"}', "`edges` is a list."],
  ['{"id": "other", "nodes": [], "edges": []}', /The id stays sample/],
  ['{"id": "sample", "nodes": [{}], "edges": []}', /nodes\[0\] needs/],
  ["[]", "A workflow is an object."],
])("%s is no document", (text, why) => {
  const read = () => fromJson(text, NOW);
  expect(read).toThrow(TextProblem);
  if (why) expect(read).toThrow(why);
});

test("the line of a mistake is found in what browsers say", () => {
  const text = '{\n  "id": 1,\n  oops\n}';
  expect(lineOf("Expected … at position 14 (line 3 column 3)", text)).toBe(3);
  expect(lineOf("Unexpected token o in JSON at position 15", text)).toBe(3);
  expect(lineOf("JSON.parse: unexpected character at line 3 column 3", text)).toBe(3);
  expect(lineOf("Unexpected end of JSON input", text)).toBe(4);
});
