/** Return the height of each part of each bar; the tallest bar fills the space. */
export function heights(bars: number[][], space: number): number[][] {
  const tallest = Math.max(0, ...bars.map(sum));
  if (tallest === 0) return bars.map((parts) => parts.map(() => 0));
  // What exists is seen: never less than a pixel.
  return bars.map((parts) =>
    parts.map((value) => (value > 0 ? Math.max(1, (value / tallest) * space) : 0)),
  );
}

function sum(values: number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** Return the days, as `2026-11-17`, from the first up to and with the last. */
export function daysBetween(first: Date, last: Date): string[] {
  const days: string[] = [];
  const at = new Date(Date.UTC(first.getUTCFullYear(), first.getUTCMonth(), first.getUTCDate()));
  while (at <= last) {
    days.push(at.toISOString().slice(0, 10));
    at.setUTCDate(at.getUTCDate() + 1);
  }
  return days;
}
