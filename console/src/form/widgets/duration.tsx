import { Field } from "../../ui/Field/Field";
import { type FieldProps, useProblem } from "../context";
import { useDraft } from "../draft";
import { readDuration, writeDuration } from "../duration";

/** Milliseconds, written with a unit. */
export function Duration(props: FieldProps) {
  const { path, label, hint, schema } = props;
  const draft = useDraft(props, {
    write: (value) => (typeof value === "number" ? writeDuration(value) : String(value)),
    read: readDuration,
  });
  const found = useProblem(path);
  const told = draft.isWrong ? { problem: "Write it with a unit: 90s, 10m, 2h, 1h30m." } : found;
  return (
    <Field label={label} hint={hint} {...told}>
      {(control) => (
        <input
          {...control}
          autoComplete="off"
          value={draft.text}
          placeholder={typeof schema.default === "number" ? writeDuration(schema.default) : "10m"}
          aria-invalid={told.problem ? true : undefined}
          onChange={(event) => draft.type(event.target.value)}
        />
      )}
    </Field>
  );
}
