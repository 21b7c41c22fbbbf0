import { useState } from "react";
import { Button } from "../../ui/Button/Button";
import { Field } from "../../ui/Field/Field";
import { type FieldProps, useProblem } from "../context";
import css from "../form.module.css";
import { InlineText } from "../InlineText";
import { currentRows, doubleNames, objectOf, type Row, readValue, writeValue } from "../rows";
import { asValues } from "../values";

/** An object with free names, as rows. Values are texts, or any JSON where that is allowed. */
export function Variables({ path, label, hint, schema, value, onChange }: FieldProps) {
  const found = useProblem(path);
  const values = asValues(value);
  const [typed, setTyped] = useState<Row[]>([]);
  const rows = currentRows(typed, values);
  const allowsJson = schema.additionalProperties === true;
  const set = (next: Row[]) => {
    setTyped(next);
    onChange(objectOf(next));
  };
  const change = (index: number, part: Partial<Row>) =>
    set(rows.map((row, at) => (at === index ? { ...row, ...part } : row)));
  const double = doubleNames(rows);
  const told = double.length ? { problem: `${double.join(", ")}: each name only once.` } : found;
  return (
    <Field label={label} hint={hint} {...told} caption>
      {() => (
        // biome-ignore lint/a11y/useSemanticElements: a fieldset would be drawn in this flow
        <div role="group" aria-label={label} className={css.rows}>
          {rows.map((row, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: names change while they are typed
            <div key={index} className={css.row}>
              <InlineText
                label={`${label}, name ${index + 1}`}
                value={row.name}
                placeholder="name"
                onChange={(name) => change(index, { name })}
              />
              <InlineText
                label={`${label}, value of ${row.name || index + 1}`}
                value={writeValue(row.value, allowsJson)}
                placeholder="value"
                template={schema.template}
                onChange={(text) => change(index, { value: readValue(text, allowsJson) })}
              />
              <Button
                look="plain"
                aria-label={`Remove ${row.name || `row ${index + 1}`} from ${label}`}
                onClick={() => set(rows.toSpliced(index, 1))}
              >
                ✕
              </Button>
            </div>
          ))}
          <Button className={css.add} onClick={() => setTyped([...rows, { name: "", value: "" }])}>
            Add to {label}
          </Button>
        </div>
      )}
    </Field>
  );
}
