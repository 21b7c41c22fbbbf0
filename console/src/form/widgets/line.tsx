import { Field } from "../../ui/Field/Field";
import { type FieldProps, useProblem } from "../context";
import { TemplateField } from "../TemplateField";
import { asText } from "../values";

/** A text of one line. */
export function Line(props: FieldProps) {
  return props.schema.template ? <TemplateField {...props} singleLine /> : <Plain {...props} />;
}

function Plain({ path, label, hint, schema, value, onChange }: FieldProps) {
  const told = useProblem(path);
  return (
    <Field label={label} hint={hint} {...told}>
      {(control) => (
        <input
          {...control}
          type={schema.writeOnly ? "password" : "text"}
          autoComplete="off"
          value={asText(value)}
          placeholder={asText(schema.default)}
          aria-invalid={told.problem ? true : undefined}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
}
