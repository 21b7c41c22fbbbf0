import { Field } from "../../ui/Field/Field";
import { type FieldProps, useProblem } from "../context";
import { TemplateField } from "../TemplateField";
import { asText } from "../values";

/** A text of several lines. */
export function Text(props: FieldProps) {
  return props.schema.template ? <TemplateField {...props} minLines={5} /> : <Plain {...props} />;
}

function Plain({ path, label, hint, schema, value, onChange }: FieldProps) {
  const told = useProblem(path);
  return (
    <Field label={label} hint={hint} {...told}>
      {(control) => (
        <textarea
          {...control}
          rows={4}
          value={asText(value)}
          placeholder={asText(schema.default)}
          aria-invalid={told.problem ? true : undefined}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
}
