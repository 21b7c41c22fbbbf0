/** The smallest change that turns one text into another, so that the cursor stays where it was. */
export interface Change {
  from: number;
  to: number;
  insert: string;
}

export function smallestChange(before: string, after: string): Change | null {
  if (before === after) return null;
  const limit = Math.min(before.length, after.length);
  let start = 0;
  while (start < limit && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < limit - start && before[before.length - 1 - end] === after[after.length - 1 - end]) {
    end += 1;
  }
  return {
    from: start,
    to: before.length - end,
    insert: after.slice(start, after.length - end),
  };
}
