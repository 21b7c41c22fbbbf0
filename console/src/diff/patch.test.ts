import { expect, test } from "vitest";
import { readFilePatch, sideBySide, splitPatch } from "./patch";

const PATCH = `diff --git a/src/a.py b/src/a.py
index 1..2 100644
--- a/src/a.py
+++ b/src/a.py
@@ -1,3 +1,3 @@ def f():
 same
-old
+new
 end
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
--- a line that looks like a header
\\ No newline at end of file
diff --git "a/caf\\303\\251.txt" "b/caf\\303\\251.txt"
new file mode 100755
`;

test("a patch is split at its files, whatever their names", () => {
  expect(splitPatch(PATCH).map((file) => file.path)).toEqual(["src/a.py", "gone.txt", "café.txt"]);
  expect(splitPatch("")).toEqual([]);
});

test("lines have their numbers, and content that looks like a header is content", () => {
  const [first, second, third] = splitPatch(PATCH).map((file) => readFilePatch(file.text));
  expect(first?.hunks[0]?.lines).toEqual([
    { kind: "same", text: "same", before: 1, after: 1 },
    { kind: "delete", text: "old", before: 2, after: 0 },
    { kind: "add", text: "new", before: 0, after: 2 },
    { kind: "same", text: "end", before: 3, after: 3 },
  ]);
  expect(second?.hunks[0]?.lines.map((line) => [line.kind, line.text])).toEqual([
    ["delete", "-- a line that looks like a header"],
    ["note", "No newline at end of file"],
  ]);
  expect(third?.notes).toEqual(["new file mode 100755"]);
});

test("deleted lines stand beside the lines that replace them", () => {
  const [file] = splitPatch(PATCH);
  const [hunk] = readFilePatch(file?.text ?? "").hunks;
  expect(hunk && sideBySide(hunk).map(({ left, right }) => [left?.text, right?.text])).toEqual([
    ["same", "same"],
    ["old", "new"],
    ["end", "end"],
  ]);
});
