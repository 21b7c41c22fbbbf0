import { expect, test } from "vitest";
import { freeId, idOf, wrongId } from "./ids";

test.each([
  ["Fix until green", "fix-until-green"],
  ["  Über  Größe!", "uber-gro-e"],
  ["../../etc/passwd", "etc-passwd"],
  ["\u202e<img>", "img"],
  ["日本語", "workflow"],
  ["", "workflow"],
  ["x".repeat(500), "x".repeat(60)],
])("the name %j gives the id %s", (name, id) => {
  expect(idOf(name)).toBe(id);
  expect(wrongId(id, [])).toBe("");
});

test("a taken id gets a number", () => {
  expect(freeId("a", ["b"])).toBe("a");
  expect(freeId("a", ["a", "a-2"])).toBe("a-3");
});

test.each(["", ".a", "a/b", "a..b", "a b", "x".repeat(200)])("%j is no id", (id) => {
  expect(wrongId(id, [])).not.toBe("");
});

test("an id is used once", () => expect(wrongId("a", ["a"])).not.toBe(""));
