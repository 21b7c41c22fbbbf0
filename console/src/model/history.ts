/** The documents that undo and redo go through. */
import type { Workflow } from "./workflow";

export interface History {
  past: Workflow[];
  present: Workflow;
  future: Workflow[];
  /** The field that the last edit was typed into; empty for any other edit. */
  field: string;
  at: number;
}

export const KEPT = 200;
const SAME_TYPING_MS = 600;

export function newHistory(present: Workflow): History {
  return { past: [], present, future: [], field: "", at: 0 };
}

/** Record an edit. Typing into one field without a pause is one edit. */
export function record(history: History, next: Workflow, at: number, field = ""): History {
  if (next === history.present) return history;
  const continues =
    field !== "" &&
    field === history.field &&
    at - history.at < SAME_TYPING_MS &&
    history.past.length;
  const past = continues ? history.past : [...history.past, history.present].slice(-KEPT);
  return { past, present: next, future: [], field, at };
}

export function undo(history: History): History {
  const before = history.past.at(-1);
  if (!before) return history;
  return {
    past: history.past.slice(0, -1),
    present: before,
    future: [history.present, ...history.future],
    field: "",
    at: 0,
  };
}

export function redo(history: History): History {
  const [next, ...future] = history.future;
  if (!next) return history;
  return { past: [...history.past, history.present], present: next, future, field: "", at: 0 };
}
