import { useState } from "react";
import type { Json } from "../api/generated";
import { isAt, useForm } from "./context";
import css from "./form.module.css";
import { below, type FormField, fieldsOf, type Schema, titleOf, type Values } from "./schema";
import { asValues, isDefault, withValue } from "./values";

interface Props {
  path: string;
  schema: Schema;
  values: Values;
  main?: string[];
  variants?: string[];
  /** What the fold of the other fields is called. */
  more?: string;
  onChange: (values: Values) => void;
}

/** The fields of an object: the important ones, and the others under "More". */
export function Fields(props: Props) {
  const { path, schema, values, main = [], variants = [], more: title = "More", onChange } = props;
  const { root, problems, Control } = useForm();
  const fields = fieldsOf(schema, root, values, { main, variants });
  const more = fields.filter((field) => field.isAdvanced);
  const used = more.filter(({ key, schema: inner }) => !isDefault(values[key], inner));
  const isWrong = more.some(({ key }) => problems.some((each) => isAt(each, `${path}.${key}`)));
  const [isOpen, setOpen] = useState(used.length > 0);
  const draw = ({ key, schema: inner }: FormField) => {
    const set = (value: Json | undefined) => onChange(withValue(values, key, value, inner));
    const shared = { path: `${path}.${key}`, schema: inner, main: below(main, key) };
    // The part of the chosen kind needs no frame: the kind above it is its title.
    return variants.includes(key) ? (
      <Fields
        key={key}
        {...shared}
        more={`More of ${titleOf(key, inner)}`}
        values={asValues(values[key])}
        onChange={set}
      />
    ) : (
      <Control
        key={key}
        {...shared}
        label={titleOf(key, inner)}
        hint={inner.description}
        value={values[key]}
        parent={{ values, schema }}
        onChange={set}
      />
    );
  };
  return (
    <>
      {fields.filter((field) => !field.isAdvanced).map(draw)}
      {more.length > 0 && (
        <details
          className={css.more}
          open={isOpen || isWrong}
          onToggle={(event) => setOpen(event.currentTarget.open)}
        >
          <summary>{used.length ? `${title} (${used.length} set)` : title}</summary>
          {(isOpen || isWrong) && more.map(draw)}
        </details>
      )}
    </>
  );
}
