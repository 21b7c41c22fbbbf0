import { Field } from "../../ui/Field/Field";
import { type FieldProps, useProblem } from "../context";
import { asText } from "../values";

/** One of a few values. */
export function Select({ path, label, hint, schema, value, onChange }: FieldProps) {
  const told = useProblem(path);
  const shown = asText(value ?? schema.default);
  const known = (schema.enum ?? []).map(asText);
  return (
    <Field label={label} hint={hint} {...told}>
      {(control) => (
        <select
          {...control}
          value={shown}
          aria-invalid={told.problem ? true : undefined}
          onChange={(event) =>
            onChange(schema.enum?.find((each) => asText(each) === event.target.value))
          }
        >
          {schema.default === undefined && <option value="">not set</option>}
          {shown !== "" && !known.includes(shown) && (
            <option value={shown}>{shown} (unknown)</option>
          )}
          {known.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
