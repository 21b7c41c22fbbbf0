import { expect, test } from "vitest";
import { KEPT, newHistory, record, undo } from "./history";
import { chain } from "./sample.test-data";

const named = (name: string) => ({ ...chain("start"), name });

test("typing into one field is one edit until there is a pause", () => {
  let history = newHistory(named(""));
  history = record(history, named("h"), 1_000, "a.prompt");
  history = record(history, named("he"), 1_500, "a.prompt");
  history = record(history, named("hel"), 3_000, "a.prompt");
  history = record(history, named("x"), 3_100, "b.prompt");
  expect(history.past.map(({ name }) => name)).toEqual(["", "he", "hel"]);
  expect(undo(undo(history)).present.name).toBe("he");
});

test("an undone edit and the next typing are two edits", () => {
  let history = newHistory(named(""));
  history = record(history, named("a"), 1_000, "f");
  history = record(undo(history), named("b"), 1_100, "f");
  expect(undo(history).present.name).toBe("");
});

test(`${KEPT} documents are kept`, () => {
  let history = newHistory(named("0"));
  for (let at = 1; at <= KEPT + 50; at += 1) history = record(history, named(`${at}`), at * 1_000);
  expect(history.past).toHaveLength(KEPT);
  expect(history.past[0]?.name).toBe("50");
});
