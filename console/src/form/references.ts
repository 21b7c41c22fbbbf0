/** `{{references}}` in the texts of a form: what may follow, and what does not exist. */
import type { Json, OfferedReference } from "../api/generated";
import type { Completion, EditorProblem } from "../ui/CodeEditor/CodeEditor";
import { safeText } from "../ui/safeText";
import { asText } from "./values";

const REFERENCE = /(?<![$\\])\{\{\s*([A-Za-z0-9_.-]+)\s*\}\}/g;
const OPEN = /(?<![$\\])\{\{[^{}\n]*$/;
const SHORT = 48;

/** The last values of outputs, by node. */
export type LastOutputs = Record<string, Record<string, Json>>;

/** Return the last value of a reference, if it has one. */
export function lastValue(ref: string, outputs: LastOutputs): Json | undefined {
  let value: Json | undefined = outputs as Json;
  for (const part of ref.split(".")) {
    if (typeof value !== "object" || value === null) return undefined;
    value = (value as { [key: string]: Json })[part];
  }
  return value;
}

/** Return what may be written inside open braces: only what exists there. */
export function offer(
  before: string,
  references: OfferedReference[],
  outputs: LastOutputs,
): Completion[] {
  if (!OPEN.test(before)) return [];
  return references.map(({ ref, certain, description }) => {
    const value = lastValue(ref, outputs);
    const last = value === undefined ? "" : safeText(asText(value)).replace(/\s+/g, " ");
    const short = last.length > SHORT ? `${last.slice(0, SHORT)}…` : last;
    const doubt = certain ? "" : "May be missing when this step runs.";
    return {
      label: ref,
      detail: short || (certain ? undefined : "may be missing"),
      info: [description, doubt].filter(Boolean).join("\n") || undefined,
    };
  });
}

/** Return the references of a text that do not exist, each at its place. */
export function unknownReferences(
  text: string,
  references: OfferedReference[],
): (EditorProblem & { from: number; to: number })[] {
  if (references.length === 0) return []; // they are not known yet; the server's check tells
  const known = references.map(({ ref }) => ref);
  const isKnown = (ref: string) => known.some((each) => ref === each || ref.startsWith(`${each}.`));
  return [...text.matchAll(REFERENCE)].flatMap((match) => {
    const ref = match[1] ?? "";
    if (isKnown(ref)) return [];
    const near = nearest(ref, known);
    const hint = near ? `Did you mean ${near}?` : "Type {{ to see what exists.";
    const message = `{{${ref}}} does not exist here. ${hint}`;
    return [{ from: match.index, to: match.index + match[0].length, message, severity: "warning" }];
  });
}

function nearest(wanted: string, known: string[]): string | undefined {
  const limit = Math.max(2, Math.floor(wanted.length / 3));
  const ranked = known
    .map((each) => ({ each, far: distance(wanted, each) }))
    .filter(({ far }) => far <= limit)
    .sort((a, b) => a.far - b.far);
  return ranked[0]?.each;
}

/** Levenshtein distance. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
