import { type ReactNode, useId } from "react";
import css from "./Panel.module.css";

interface Props {
  title: string;
  /** Stands at the right of the title. */
  side?: ReactNode;
  children: ReactNode;
}

/** A part of a page under its heading. */
export function Panel({ title, side, children }: Props) {
  const id = useId();
  return (
    <section aria-labelledby={id} className={css.panel}>
      <header className={css.header}>
        <h2 id={id}>{title}</h2>
        {side}
      </header>
      {children}
    </section>
  );
}
