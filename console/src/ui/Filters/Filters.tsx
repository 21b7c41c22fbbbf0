import { type ReactNode, useId, useState } from "react";
import { Button } from "../Button/Button";
import { Dialog } from "../Dialog/Dialog";
import { useNarrow } from "../useNarrow";
import css from "./Filters.module.css";

interface Props {
  /** How many of the filters are set. */
  count: number;
  children: ReactNode;
}

/** Filters in a line; on a phone behind a button, in a sheet. */
export function Filters({ count, children }: Props) {
  const [open, setOpen] = useState(false);
  const narrow = useNarrow();
  if (!narrow) return <div className={css.filters}>{children}</div>;
  return (
    <>
      <Button onClick={() => setOpen(true)}>Filters{count ? ` (${count})` : ""}</Button>
      {open && (
        <Dialog
          title="Filters"
          onClose={() => setOpen(false)}
          actions={
            <Button look="primary" onClick={() => setOpen(false)}>
              Show
            </Button>
          }
        >
          <div className={css.sheet}>{children}</div>
        </Dialog>
      )}
    </>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  onChoose: (value: string) => void;
  /** Each value with the word that is shown; the empty one is no filter. */
  options: [value: string, word: string][];
}

/** A filter with a list of values. */
export function Choice({ label, value, onChoose, options }: ChoiceProps) {
  const id = useId();
  return (
    <span className={css.choice}>
      <label htmlFor={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onChoose(event.target.value)}>
        {options.map(([each, word]) => (
          <option key={each} value={each}>
            {word}
          </option>
        ))}
      </select>
    </span>
  );
}
