import { expect, test } from "vitest";
import { safeText } from "./safeText";

test.each([
  ["plain\ttext\n", "plain\ttext\n"],
  ["\u001b[31mred\u001b[0m", "red"],
  ["\u001b]8;;http://evil\u0007link\u001b]8;;\u0007", "link"],
  ["a\u202eb", "a\\u{202e}b"],
  ["a\u0000b\u200bc", "a\\u{0}b\\u{200b}c"],
  ["<img onerror=1>", "<img onerror=1>"],
  ["one\r\ntwo\rthree", "one\ntwo\\u{d}three"],
])("%j is shown as %j", (text, shown) => {
  expect(safeText(text)).toBe(shown);
});
