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
