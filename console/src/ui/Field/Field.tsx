import { type ReactNode, useId } from "react";
import css from "./Field.module.css";

interface Props {
  label: string;
  hint?: string;
  problem?: string;
  /** The problem keeps nothing from running. */
  isWarning?: boolean;
  /** The control has its name by itself, as an editor does; the label is only its caption. */
  caption?: boolean;
  /** Renders the control; it must use the given id and description. */
  children: (control: { id: string; "aria-describedby"?: string }) => ReactNode;
}

/** A labelled control with its hint, and what is wrong with its content. */
export function Field({ label, hint, problem, isWarning, caption, children }: Props) {
  const id = useId();
  const about = `${id}about`;
  const described = hint || problem ? about : undefined;
  return (
    <div className={css.field}>
      {caption ? <span className={css.caption}>{label}</span> : <label htmlFor={id}>{label}</label>}
      {children({ id, "aria-describedby": described })}
      {described && (
        <div id={about}>
          {problem && (
            <p className={css.problem} data-warning={isWarning || undefined}>
              ▲ {problem}
            </p>
          )}
          {hint && <p className={css.hint}>{hint}</p>}
        </div>
      )}
    </div>
  );
}
