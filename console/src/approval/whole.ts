/** Whether a question is shown whole. The server marks what it had to leave out. */
import type { Approval, Json } from "../api/generated";

const CUT_TEXT = /… \(\d+ more characters\)$/;
const CUT_LIST = /^… \d+ more members$/;
const NOT_SHOWN = /^\[\w+, not shown\]$/;

/** Return whether something of the action was left out by the server. */
export function isCut(approval: Pick<Approval, "title" | "details">): boolean {
  if (CUT_TEXT.test(approval.title)) return true;
  const names = Object.keys(approval.details);
  if (names.length === 1 && names[0] === "omitted") return true;
  return hasCut(approval.details as Json);
}

function hasCut(value: Json): boolean {
  if (typeof value === "string") {
    return CUT_TEXT.test(value) || CUT_LIST.test(value) || NOT_SHOWN.test(value);
  }
  if (Array.isArray(value)) return value.some(hasCut);
  if (value === null || typeof value !== "object") return false;
  return Object.entries(value).some(
    ([name, inner]) => name === "…" || CUT_TEXT.test(name) || hasCut(inner),
  );
}
