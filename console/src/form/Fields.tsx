import { useState } from "react";
import { isAt, useForm } from "./context";
import css from "./form.module.css";
import { below, type FormField, fieldsOf, type Schema, titleOf, type Values } from "./schema";
import { isDefault, withValue } from "./values";

interface Props {
  path: string;
  schema: Schema;
  values: Values;
  main?: string[];
  variants?: string[];
  onChange: (values: Values) => void;
}

/** The fields of an object: the important ones, and the others under "More". */
export function Fields({ path, schema, values, main = [], variants, onChange }: Props) {
  const { root, problems, Control } = useForm();
  const fields = fieldsOf(schema, root, values, { main, variants });
  const more = fields.filter((field) => field.isAdvanced);
  const used = more.filter(({ key, schema: inner }) => !isDefault(values[key], inner));
  const isWrong = more.some(({ key }) => problems.some((each) => isAt(each, `${path}.${key}`)));
  const [isOpen, setOpen] = useState(used.length > 0);
  const draw = ({ key, schema: inner }: FormField) => (
    <Control
      key={key}
      path={`${path}.${key}`}
      label={titleOf(key, inner)}
      hint={inner.description}
      schema={inner}
      value={values[key]}
      parent={{ values, schema }}
      main={below(main, key)}
      onChange={(value) => onChange(withValue(values, key, value, inner))}
    />
  );
  return (
    <>
      {fields.filter((field) => !field.isAdvanced).map(draw)}
      {more.length > 0 && (
        <details
          className={css.more}
          open={isOpen || isWrong}
          onToggle={(event) => setOpen(event.currentTarget.open)}
        >
          <summary>{used.length ? `More (${used.length} set)` : "More"}</summary>
          {(isOpen || isWrong) && more.map(draw)}
        </details>
      )}
    </>
  );
}
