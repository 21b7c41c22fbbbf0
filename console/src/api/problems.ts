import type { ShownProblem } from "./generated";

/** What is wrong, and what to do about it, as one text. */
export function problemText({ message, hint }: ShownProblem): string {
  return hint ? `${message}: ${hint}` : message;
}
