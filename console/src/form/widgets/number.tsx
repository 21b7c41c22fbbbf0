import { Field } from "../../ui/Field/Field";
import { type FieldProps, useProblem } from "../context";
import { useDraft } from "../draft";
import { asText } from "../values";

/** A number. A half-typed one stays in the field and is not a value yet. */
export function NumberField(props: FieldProps) {
  const { path, label, hint, schema } = props;
  const isWhole = schema.type === "integer";
  const isNumber = isWhole ? Number.isSafeInteger : Number.isFinite;
  const draft = useDraft(props, {
    write: asText,
    read: (text) => (isNumber(Number(text)) ? Number(text) : null),
  });
  const found = useProblem(path);
  const told = draft.isWrong
    ? { problem: `Write a ${isWhole ? "whole number" : "number"}.` }
    : found;
  return (
    <Field label={label} hint={hint} {...told}>
      {(control) => (
        <input
          {...control}
          inputMode={isWhole ? "numeric" : "decimal"}
          autoComplete="off"
          value={draft.text}
          placeholder={asText(schema.default)}
          aria-invalid={told.problem ? true : undefined}
          onChange={(event) => draft.type(event.target.value)}
        />
      )}
    </Field>
  );
}
