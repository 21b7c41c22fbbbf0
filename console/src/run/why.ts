/** Why a run is in its state, in words: the first line is the answer, the others are its evidence. */
import type { Approval, Cause, Explanation, Position } from "../api/generated";
import { clock, dateTime, duration, plural, shortId } from "../ui/format";
import { containerOf, frameOf } from "./paths";
import type { Step } from "./steps";

export interface WhyLine {
  text: string;
  /** The step that it is about. */
  step?: string;
  /** A run that it is about. */
  run?: string;
  /** A question that waits for a person. */
  approval?: Approval;
}

const BUDGET = "budget:";

export function whyLines(known: Explanation, steps: readonly Step[]): WhyLine[] {
  const lines = [...present(known, steps), ...evidence(known)];
  return lines.filter((line) => line.text);
}

export function causeText(cause: Cause): string {
  const kind = cause.kind ?? "cli";
  const text =
    {
      cli: "by command line",
      rewind: "by rewind",
      import: "imported",
      api: "by API",
      mcp: "by MCP",
    }[kind as string] ?? `by ${kind}`;
  return cause.detail ? `${text} (${cause.detail})` : text;
}

function present(known: Explanation, steps: readonly Step[]): WhyLine[] {
  const status = known.run.status;
  if (status === "running") return running(known, steps);
  if (status === "stalled") {
    const silent = duration(known.at - known.lastSignAt);
    return [{ text: `its process ${processText(known)} is silent since ${silent}` }, ...at(known)];
  }
  if (status === "interrupted") {
    const sign = dateTime(known.lastSignAt);
    const text = `its process ${processText(known)} ended without finishing it; last sign ${sign}`;
    return [{ text }, ...at(known)];
  }
  return ended(known);
}

function running(known: Explanation, steps: readonly Step[]): WhyLine[] {
  const asked = known.approvals.map((approval) => ({
    text: `waits for you: ${approval.title}`,
    step: approval.stepPath,
    approval,
  }));
  const stop = known.stop && {
    text: `asked to stop at ${clock(known.stop.at)}: ${known.stop.reason}; waits for its steps to end`,
  };
  const now = known.positions.map((position) => ({
    text: positionText(position, known, steps),
    step: position.path,
  }));
  const nothing = { text: "is between two steps" };
  return [...asked, ...(stop ? [stop] : []), ...(now.length ? now : [nothing])];
}

function positionText(position: Position, known: Explanation, steps: readonly Step[]): string {
  const loops = position.loops
    .map((loop) =>
      loop.maxRounds ? `round ${loop.round} of ${loop.maxRounds}` : `round ${loop.round}`,
    )
    .join(", ");
  const time = position.waitingUntil
    ? `waits until ${clock(position.waitingUntil)}`
    : `for ${duration(known.at - position.startedAt)}`;
  const parts = [loops, `at ${position.path} ${time}`, notMet(position, steps), position.uses];
  return parts.filter(Boolean).join("; ");
}

/** How often the conditions of the loop around a step were not met. */
function notMet(position: Position, steps: readonly Step[]): string {
  const loop = containerOf(frameOf(position.path));
  if (!loop) return "";
  const missed = steps.filter(
    (step) => step.handle === "not_met" && step.path.startsWith(`${loop}[`),
  );
  const last = missed.at(-1);
  return last ? `${last.nodeId} was not met ${plural(missed.length, "time")}` : "";
}

function ended(known: Explanation): WhyLine[] {
  const { ending, lastStep: last, run } = known;
  const status = run.status;
  if (!ending) return [{ text: status }];
  if (status === "succeeded") {
    const reached = known.reached;
    return [
      { text: reached ? `reached ${reached}, and nothing follows` : "it is over", step: reached },
    ];
  }
  const error = ending.error.startsWith(BUDGET) ? ending.error.slice(BUDGET.length).trim() : "";
  if (status === "paused") {
    const next = ending.failedStep;
    return [{ text: `its budget is used up: ${error}; it goes on with ${next}`, step: next }];
  }
  if (known.stop) {
    return [
      { text: `asked to stop at ${clock(known.stop.at)}: ${known.stop.reason}` },
      ...at(known),
    ];
  }
  if (ending.interrupted) {
    return [
      { text: "its process ended without finishing it; that was recorded later" },
      ...at(known),
    ];
  }
  const lines: WhyLine[] = [
    {
      text: error ? `its budget ran out: ${error}` : ending.error,
      step: ending.failedStep || last?.path,
    },
  ];
  if (last?.error) {
    const after = last.nextPath ? `the run went on to ${last.nextPath}` : "nothing followed it";
    const text = `${last.path} left by ${last.handle || "nothing"} after ${duration(last.durationMs)}; ${after}`;
    if (!ending.error.includes(last.error)) lines.push({ text: last.error, step: last.path });
    lines.push({ text, step: last.path });
  }
  return lines;
}

function at(known: Explanation): WhyLine[] {
  return known.positions.map(({ path, uses }) => ({
    text: `it was at ${path}${uses ? `, ${uses}` : ""}`,
    step: path,
  }));
}

function processText({ process }: Explanation): string {
  return process.pid === null ? `(${process.id})` : `(pid ${process.pid} on ${process.host})`;
}

/** What else is known: refusals, warnings, where the run came from. */
function evidence(known: Explanation): WhyLine[] {
  return [
    ...known.denials.map((text) => ({ text })),
    ...known.notices.map(({ level, message }) => ({ text: `${level}: ${message}` })),
    ...known.resumedAt.map((time) => ({
      text: `its process had died; resumed at ${dateTime(time)}`,
    })),
    ...(known.newWorkflow ? [{ text: "goes on with another version of its workflow" }] : []),
    ...known.ancestors.map(({ runId, startedAt }) => ({
      text: `rewound from run ${shortId(runId)} of ${dateTime(startedAt)}`,
      run: runId,
    })),
    { text: `${plural(known.stepsDone, "step")} done, in ${known.workdir}` },
  ];
}

/** The last lines that the run printed before it came to where it is. */
export function lastLines(known: Explanation, count = 3): string[] {
  return known.lastOutput
    .split("\n")
    .filter((line) => line.trim())
    .slice(-count);
}
