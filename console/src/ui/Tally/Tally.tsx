import css from "./Tally.module.css";

export type Round = "met" | "not-met" | "running" | "failed";

/** One tick for each round of a loop, shaped by how it ended; of many, the newest. */
export function Tally({ rounds, shown = 24 }: { rounds: Round[]; shown?: number }) {
  const hidden = Math.max(0, rounds.length - shown);
  const counts = `${rounds.length} rounds${rounds.at(-1) === "running" ? ", one running" : ""}`;
  return (
    <span className={css.tally} role="img" aria-label={counts}>
      {hidden > 0 && <span className={css.more}>{hidden}+</span>}
      {rounds.slice(hidden).map((round, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a round's number is its identity
        <span key={hidden + at} className={css.tick} data-round={round} />
      ))}
    </span>
  );
}
