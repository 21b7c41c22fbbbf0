/** Unified patches, as git writes them, read into files, hunks and lines. */

export interface DiffLine {
  kind: "add" | "delete" | "same" | "note";
  text: string;
  /** Line numbers before and after; 0 where there is none. */
  before: number;
  after: number;
}

export interface Hunk {
  header: string;
  lines: DiffLine[];
}

export interface FilePatch {
  /** The path after the change; of a deleted file, before it. */
  path: string;
  /** What git says between the file's header and its first hunk: modes, renames, binary. */
  notes: string[];
  hunks: Hunk[];
  /** How many characters its part of the patch has. */
  size: number;
}

/** Split a patch at its files; the text of each is read when it is shown. */
export function splitPatch(patch: string): { path: string; text: string }[] {
  const starts: number[] = [];
  for (let at = patch.startsWith("diff --git ") ? 0 : -1; at >= 0; ) {
    starts.push(at);
    const next = patch.indexOf("\ndiff --git ", at);
    at = next < 0 ? -1 : next + 1;
  }
  return starts.map((start, at) => {
    const text = patch.slice(start, starts[at + 1] ?? patch.length);
    return { path: pathOf(text), text };
  });
}

export function readFilePatch(text: string): FilePatch {
  const file: FilePatch = { path: pathOf(text), notes: [], hunks: [], size: text.length };
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  let hunk: Hunk | null = null;
  let before = 0;
  let after = 0;
  let [leftBefore, leftAfter] = [0, 0];
  for (const line of lines.slice(1)) {
    const sign = line[0] ?? " ";
    const head = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line);
    if (head && leftBefore + leftAfter <= 0) {
      before = Number(head[1]);
      after = Number(head[3]);
      leftBefore = Number(head[2] ?? 1);
      leftAfter = Number(head[4] ?? 1);
      hunk = { header: line, lines: [] };
      file.hunks.push(hunk);
    } else if (!hunk) {
      if (!/^(--- |\+\+\+ |index )/.test(line)) file.notes.push(line);
    } else if (sign === "+") {
      hunk.lines.push({ kind: "add", text: line.slice(1), before: 0, after });
      after += 1;
      leftAfter -= 1;
    } else if (sign === "-") {
      hunk.lines.push({ kind: "delete", text: line.slice(1), before, after: 0 });
      before += 1;
      leftBefore -= 1;
    } else if (sign === "\\") {
      hunk.lines.push({ kind: "note", text: line.slice(2), before: 0, after: 0 });
    } else {
      hunk.lines.push({ kind: "same", text: line.slice(1), before, after });
      before += 1;
      after += 1;
      leftBefore -= 1;
      leftAfter -= 1;
    }
  }
  return file;
}

export interface Pair {
  left: DiffLine | null;
  right: DiffLine | null;
}

/** Lines side by side: deleted lines stand beside the lines that replace them. */
export function sideBySide(hunk: Hunk): Pair[] {
  const pairs: Pair[] = [];
  let deleted: DiffLine[] = [];
  let added: DiffLine[] = [];
  const flush = () => {
    for (let at = 0; at < Math.max(deleted.length, added.length); at += 1) {
      pairs.push({ left: deleted[at] ?? null, right: added[at] ?? null });
    }
    deleted = [];
    added = [];
  };
  for (const line of hunk.lines) {
    if (line.kind === "delete") {
      if (added.length) flush();
      deleted.push(line);
    } else if (line.kind === "add") {
      added.push(line);
    } else {
      flush();
      if (line.kind === "same") pairs.push({ left: line, right: line });
    }
  }
  flush();
  return pairs;
}

function pathOf(text: string): string {
  const head = text.slice(0, text.indexOf("\n@@") + 1 || undefined);
  const named = /^\+\+\+ "?b\/(.*?)"?\t?$/m.exec(head) ?? /^--- "?a\/(.*?)"?\t?$/m.exec(head);
  if (named) return unquoted(named[1] ?? "");
  const renamed = /^rename to (.*)$/m.exec(head);
  if (renamed) return unquoted(renamed[1] ?? "");
  // Without changed lines there is only the first line; both names in it are the same.
  const both = /^diff --git "?a\/(.*?)"? "?b\/\1"?$/m.exec(head);
  return unquoted(both?.[1] ?? head.split("\n", 1)[0] ?? "");
}

/** Git writes unusual bytes of a name as octal escapes. */
function unquoted(name: string): string {
  if (!name.includes("\\")) return name;
  const bytes: number[] = [];
  const encoder = new TextEncoder();
  const plain: Record<string, number> = { n: 10, t: 9, r: 13, a: 7, b: 8, f: 12, v: 11 };
  for (let at = 0; at < name.length; at += 1) {
    const octal = /^\\([0-7]{3})/.exec(name.slice(at, at + 4));
    if (octal) {
      bytes.push(Number.parseInt(octal[1] ?? "0", 8));
      at += 3;
    } else if (name[at] === "\\") {
      at += 1;
      const letter = name[at] ?? "";
      bytes.push(...(letter in plain ? [plain[letter] ?? 0] : encoder.encode(letter)));
    } else {
      bytes.push(...encoder.encode(String.fromCodePoint(name.codePointAt(at) ?? 0)));
      if ((name.codePointAt(at) ?? 0) > 0xffff) at += 1;
    }
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}
