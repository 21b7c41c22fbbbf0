/** Ids of new workflows: a file name that no other workflow has. */
const MAX = 60;

/** Return an id that can be made of a name. */
export function idOf(name: string): string {
  const plain = name.normalize("NFKD").replace(/[\u0300-\u036f]/g, "");
  const bare = plain
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .slice(0, MAX);
  return bare.replace(/^-+|-+$/g, "") || "workflow";
}

/** Return the id, with a number behind it if it is taken. */
export function freeId(id: string, taken: string[]): string {
  let free = id;
  for (let number = 2; taken.includes(free); number += 1) free = `${id}-${number}`;
  return free;
}

/** Why a text cannot be an id; empty if it can. */
export function wrongId(id: string, taken: string[]): string {
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(id) || id.includes("..")) {
    return "Use letters, digits, dots, dashes and underscores, a letter or digit first.";
  }
  return taken.includes(id) ? "There is a workflow of this id." : "";
}
