/** What the audit log can be filtered by. */

function each(...names: string[]): [string, string][] {
  return [["", "any"], ...names.map((name): [string, string] => [name, name])];
}

/** The areas of events; the address may also name a single event. */
export const AREAS = each(
  "access",
  "approval",
  "audit",
  "connection",
  "dev",
  "egress",
  "installation",
  "leak",
  "login",
  "queue",
  "run",
  "server",
  "tool",
  "trigger",
  "webhook",
  "workflow",
  "worktree",
);

export const ACTORS = each(
  "anonymous",
  "api-token",
  "browser-session",
  "cli",
  "mcp",
  "open",
  "system",
  "webhook",
);

const HOUR = 3_600_000;
const LENGTHS: Record<string, number> = { "1h": HOUR, "1d": 24 * HOUR, "7d": 168 * HOUR };

export const SINCE: [string, string][] = [
  ["", "ever"],
  ["1h", "an hour"],
  ["1d", "a day"],
  ["7d", "a week"],
];

/** Return when a span begins, to the minute, so that it stays the same while somebody looks. */
export function startOf(since: string, now = Date.now()): number {
  const length = LENGTHS[since];
  return length ? Math.floor((now - length) / 60_000) * 60_000 : 0;
}
