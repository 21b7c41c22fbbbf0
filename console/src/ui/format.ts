/** Numbers, times and money as people read them. */

export function money(usd: number | null | undefined, isComplete = true): string {
  if (usd === null || usd === undefined) return "–";
  const digits = usd !== 0 && Math.abs(usd) < 0.01 ? 4 : 2;
  return `$${usd.toFixed(digits)}${isComplete ? "" : "+"}`;
}

export function tokens(count: number): string {
  if (count < 1_000) return String(count);
  if (count < 1_000_000) return `${(count / 1_000).toFixed(count < 10_000 ? 1 : 0)}k`;
  return `${(count / 1_000_000).toFixed(1)}M`;
}

export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1_000) return `${Math.round(ms)}ms`;
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 10) return `${(ms / 1_000).toFixed(1)}s`;
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m${pad(seconds % 60)}s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours}h${pad(minutes % 60)}m`;
  return `${Math.floor(hours / 24)}d${hours % 24}h`;
}

/** How long ago, or how soon. */
export function ago(time: number, now: number): string {
  const ms = now - time;
  if (Math.abs(ms) < 1_000) return "now";
  const text = duration(Math.round(Math.abs(ms) / 1_000) * 1_000).replace(/\.\d+/, "");
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

export function clock(time: number): string {
  const at = new Date(time);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

export function day(time: number): string {
  const at = new Date(time);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
}

export function dateTime(time: number): string {
  return `${day(time)} ${clock(time)}`;
}

/** The part of a run's id that people use: as much as the command line shows and takes. */
export function shortId(runId: string): string {
  return runId.slice(0, 8);
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

function pad(value: number): string {
  return String(value).padStart(2, "0");
}
