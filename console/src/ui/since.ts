/** Spans of time that lists can be filtered by. */

const HOUR = 3_600_000;
const LENGTHS: Record<string, number> = { "1h": HOUR, "1d": 24 * HOUR, "7d": 168 * HOUR };

export const SINCE: [value: string, word: string][] = [
  ["", "ever"],
  ["1h", "an hour"],
  ["1d", "a day"],
  ["7d", "a week"],
];

/** Return the time (ms) at which a span such as `7d`, or a day such as `2026-11-17`, begins. */
export function startOf(since: string, now = Date.now()): number {
  const length = LENGTHS[since];
  // A whole minute, so that the answer stays the same while somebody looks.
  if (length) return Math.floor((now - length) / 60_000) * 60_000;
  const day = Date.parse(since);
  return Number.isNaN(day) ? 0 : day;
}
