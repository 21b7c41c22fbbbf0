/** Typed text that is not always a value: it stays in its field, and only values go out. */
import { useState } from "react";
import type { Json } from "../api/generated";
import type { FieldProps } from "./context";
import { isDefault, isEqual } from "./values";

interface Reading {
  write: (value: Json) => string;
  /** Return the value of a text, or null if it has none. */
  read: (text: string) => Json | null;
}

interface Draft {
  text: string;
  isWrong: boolean;
  type: (text: string) => void;
}

/** Keep what is typed as long as the field's value is what was made of it; undo replaces it. */
export function useDraft(field: FieldProps, { write, read }: Reading): Draft {
  const { value, schema, onChange } = field;
  const [typed, setTyped] = useState<{ text: string; value: Json | undefined } | null>(null);
  const isOwn =
    typed !== null &&
    (isEqual(typed.value, value) || (value === undefined && isDefault(typed.value, schema)));
  const text = isOwn ? typed.text : value === undefined ? "" : write(value);
  const isBlank = text.trim() === "";
  return {
    text,
    isWrong: !isBlank && read(text) === null,
    type: (next) => {
      const made = next.trim() === "" ? undefined : read(next);
      setTyped({ text: next, value: made === null ? value : made });
      if (made !== null) onChange(made);
    },
  };
}
