/** What is said of a run in one line. */
import type { Cause, RunSummary } from "../api/generated";
import { shortId } from "../ui/format";
import { lookOf } from "../ui/StateMark/states";
import { safeText } from "../ui/safeText";

interface Named {
  workflowName: string;
  runId: string;
  status: string;
}

/** Return the state to show: a run that waits for a person is not simply running. */
export function stateOf(
  run: { runId: string; status: string },
  asking: ReadonlySet<string>,
): string {
  return run.status === "running" && asking.has(run.runId) ? "asking" : run.status;
}

/** Return the name of a run's row: `deploy 77b0, failed`. */
export function rowName(run: Named, state: string = run.status): string {
  return `${run.workflowName} ${shortId(run.runId)}, ${lookOf(state).word}`;
}

/** Return why a run ended as it did, or where a search found it. */
export function outcome(run: RunSummary): string {
  if (run.match) return `${run.match.step}: “${safeText(run.match.text)}”`;
  const error = safeText(run.errorMessage ?? run.error ?? "").replace(/^step '[^']*' failed: /, "");
  if (!error) return "";
  return run.failedStep ? `${run.failedStep}: ${error}` : error;
}

/** Return who or what started a run. */
export function startedBy({ cause }: { cause: Cause }): string {
  const { kind = "cli", detail } = cause;
  const isTrigger = ["webhook", "schedule", "file"].includes(kind);
  return isTrigger && detail ? `${kind} ${safeText(detail)}` : kind;
}
