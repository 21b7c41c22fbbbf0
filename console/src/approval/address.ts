/** Where a question is shown. The id of a schedule is kept out of addresses, as all trigger ids. */
import type { Approval, TriggerView } from "../api/generated";

const MISSED = "missed-schedule:";

/** Return the id of the trigger that a question is about, if it is about one. */
export function triggerOf(approval: Approval): string {
  return approval.id.startsWith(MISSED) ? approval.id.slice(MISSED.length) : "";
}

export function approvalAddress(approval: Approval, triggers: TriggerView[]): string {
  return `/approvals/${encodeURIComponent(publicId(approval, triggers))}`;
}

/** Return the id of a question as it stands in addresses. */
export function publicId(approval: Approval, triggers: TriggerView[]): string {
  const trigger = triggerOf(approval);
  if (!trigger) return approval.id;
  const mark = triggers.find((each) => each.id === trigger)?.mark ?? "";
  return `${MISSED}${mark}`;
}

/** Return whether an address means this question. Before triggers are known, links have no mark. */
export function isAt(wanted: string, approval: Approval, triggers: TriggerView[]): boolean {
  const isUnmarked = wanted === MISSED && triggerOf(approval) !== "";
  return isUnmarked || publicId(approval, triggers) === wanted;
}
