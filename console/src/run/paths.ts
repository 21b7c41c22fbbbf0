/**
 * Paths of steps: `loop-1[3]/agent-1` is `agent-1` in round 3 of `loop-1`, `both{left}/x` is in the
 * branch `left`, `x#2` is a second visit, and `call-1/x` is inside a called workflow.
 */

/** The path of the frame around a path: its round, branch or call; empty for the run itself. */
export function frameOf(path: string): string {
  const slash = path.lastIndexOf("/");
  return slash < 0 ? "" : path.slice(0, slash);
}

/** The step that a frame belongs to: `loop-1` of `loop-1[3]`; a call's frame is its step. */
export function containerOf(frame: string): string {
  return frame.replace(/(\[\d+\]|\{[^{}]*\})$/, "");
}

export function roundOf(frame: string): number | null {
  const found = /\[(\d+)\]$/.exec(frame);
  return found ? Number(found[1]) : null;
}

export function branchOf(frame: string): string | null {
  return /\{([^{}]*)\}$/.exec(frame)?.[1] ?? null;
}

/** The last part of a path, which a list shows below its frame. */
export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** Whether a path is `outer` or inside it; everything is inside the run, which is empty. */
export function isWithin(path: string, outer: string): boolean {
  if (!outer || path === outer) return true;
  return path.startsWith(outer) && "/[{".includes(path[outer.length] ?? " ");
}
