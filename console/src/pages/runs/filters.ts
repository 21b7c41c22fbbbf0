/** The values that the list of runs can be filtered by. */

export const STATUSES: [string, string][] = [
  ["", "any"],
  ...["running", "stalled", "interrupted", "paused", "succeeded", "failed", "cancelled"].map(
    (each): [string, string] => [each, each],
  ),
];
