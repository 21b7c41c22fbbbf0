import { type ReactNode, useId } from "react";
import { Field } from "../ui/Field/Field";
import { type FieldProps, useForm, useProblem } from "./context";
import css from "./form.module.css";
import { unknownReferences } from "./references";
import { asText } from "./values";

export interface Suggestion {
  value: string;
  label?: string;
}

interface Props extends FieldProps {
  suggestions: Suggestion[];
  /** Stands at the right of the input. */
  side?: ReactNode;
}

/** A line of text with suggestions; any other text is fine. */
export function SuggestField(props: Props) {
  const { path, label, hint, schema, value, onChange, suggestions, side } = props;
  const { references } = useForm();
  const list = useId();
  const text = asText(value);
  const unknown = schema.template ? unknownReferences(text, references) : [];
  const found = useProblem(path);
  const first = unknown[0];
  const told = found.problem || !first ? found : { problem: first.message, isWarning: true };
  const templates = schema.template ? references.map(({ ref }) => ({ value: `{{${ref}}}` })) : [];
  const all: Suggestion[] = [...suggestions, ...templates];
  return (
    <Field label={label} hint={hint} {...told}>
      {(control) => (
        <div className={css.withSide}>
          <input
            {...control}
            list={list}
            autoComplete="off"
            spellCheck={false}
            value={text}
            placeholder={asText(schema.default)}
            onChange={(event) => onChange(event.target.value)}
          />
          <datalist id={list}>
            {all.map((each) => (
              <option key={each.value} value={each.value} label={each.label} />
            ))}
          </datalist>
          {side}
        </div>
      )}
    </Field>
  );
}
