/** Durations as people write them: `250ms`, `90s`, `10m`, `1h30m`. */
const UNITS: [string, number][] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
  ["ms", 1],
];

export function writeDuration(ms: number): string {
  if (ms === 0) return "0";
  let rest = ms;
  let text = "";
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    if (count) text += `${count}${unit}`;
    rest -= count * size;
  }
  return text || String(ms);
}

/** Return milliseconds, or null if the text is no duration. */
export function readDuration(text: string): number | null {
  const bare = text.replace(/\s+/g, "").toLowerCase();
  if (bare === "0") return 0;
  if (!/^(\d+(\.\d+)?(ms|[dhms]))+$/.test(bare)) return null;
  let total = 0;
  for (const [, count, unit] of bare.matchAll(/(\d+(?:\.\d+)?)(ms|[dhms])/g)) {
    total += Number(count) * (UNITS.find(([name]) => name === unit)?.[1] ?? 0);
  }
  return Number.isSafeInteger(total) ? total : null;
}
