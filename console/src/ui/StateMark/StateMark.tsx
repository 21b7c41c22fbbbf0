import css from "./StateMark.module.css";
import { type Look, lookOf } from "./states";

interface Props {
  state: string;
  /** Say something else than the state's own word. */
  word?: string;
  /** Show the sign alone; the word is still read aloud. */
  short?: boolean;
  look?: Look;
}

/** A state as sign, word and colour. */
export function StateMark({ state, word, short, look = lookOf(state) }: Props) {
  return (
    <span className={css.mark} data-tone={look.tone} data-solid={look.tone === "ask" || undefined}>
      <span aria-hidden="true" className={css.sign} data-live={state === "running" || undefined}>
        {look.sign}
      </span>
      <span className={short ? "visually-hidden" : undefined}>{word ?? look.word}</span>
    </span>
  );
}
