/** The changed files of a run or a step, with those that other programs act on first. */
import type { ChangeList, FileChange } from "../api/generated";

export interface ChangedFile extends FileChange {
  directory: string;
  /** Why it is applied only if it is allowed: protected, or with a secret; empty for most files. */
  protectedBy: string;
  /** Distinguishes equal paths in several directories. */
  key: string;
}

export function changedFiles(changes: ChangeList): ChangedFile[] {
  const files = changes.directories.flatMap(({ directory, files, protected: guarded, secrets }) =>
    files.map((file) => ({
      ...file,
      directory,
      protectedBy: guarded[file.path] ?? secretWords(secrets[file.path]),
      key: changes.directories.length > 1 ? `${directory}:${file.path}` : file.path,
    })),
  );
  return files.sort(
    (a, b) =>
      Number(b.protectedBy !== "") - Number(a.protectedBy !== "") ||
      a.directory.localeCompare(b.directory) ||
      folderOf(a.path).localeCompare(folderOf(b.path)) ||
      a.path.localeCompare(b.path),
  );
}

function secretWords(kinds: readonly string[] | undefined): string {
  return kinds?.length ? `holds a secret: ${kinds.join(", ")}` : "";
}

/** Files of the directory itself come first. */
function folderOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/", path.length - 2) + 1);
}

export function leftOut(changes: ChangeList): [string, string][] {
  return changes.directories.flatMap((directory) => Object.entries(directory.leftOut));
}

export function countsOf(files: readonly FileChange[]): { insertions: number; deletions: number } {
  return {
    insertions: files.reduce((sum, file) => sum + file.insertions, 0),
    deletions: files.reduce((sum, file) => sum + file.deletions, 0),
  };
}
