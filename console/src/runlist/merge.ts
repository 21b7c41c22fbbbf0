/** A long list of runs, newest first, of which the beginning is read again and again. */
import type { RunSummary } from "../api/generated";

export interface RunStock {
  runs: RunSummary[];
  /** Where the next older page begins; null at the end. */
  next: string | null;
}

/** Return the list with its newest page as it is now. */
export function withNewest(stock: RunStock, page: RunSummary[], next: string | null): RunStock {
  const last = page.at(-1);
  if (!last || next === null) return { runs: page, next };
  const fresh = new Set(page.map((run) => run.runId));
  const meets = stock.runs.some((run) => fresh.has(run.runId));
  // More than a page is new: there would be a gap.
  if (!meets) return { runs: page, next };
  const older = stock.runs.filter((run) => isOlder(run, last) && !fresh.has(run.runId));
  return { runs: [...page, ...older], next: older.length ? stock.next : next };
}

/** Return the list with one older page behind it. */
export function withOlder(stock: RunStock, page: RunSummary[], next: string | null): RunStock {
  const known = new Set(stock.runs.map((run) => run.runId));
  return { runs: [...stock.runs, ...page.filter((run) => !known.has(run.runId))], next };
}

function isOlder(run: RunSummary, than: RunSummary): boolean {
  return run.startedAt < than.startedAt || (run.startedAt === than.startedAt && run !== than);
}
