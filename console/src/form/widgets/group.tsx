import { type FieldProps, useProblem } from "../context";
import { Fields } from "../Fields";
import css from "../form.module.css";
import { asValues } from "../values";

/** An object with known fields. */
export function Group({ path, label, hint, schema, value, main, variants, onChange }: FieldProps) {
  const { problem } = useProblem(path, false);
  return (
    <fieldset className={css.group}>
      <legend>{label}</legend>
      {problem && <p className={css.problem}>▲ {problem}</p>}
      {hint && <p className={css.hint}>{hint}</p>}
      <Fields
        path={path}
        schema={schema}
        values={asValues(value)}
        main={main}
        variants={variants}
        onChange={onChange}
      />
    </fieldset>
  );
}
