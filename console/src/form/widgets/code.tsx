import { CodeEditor, type Language } from "../../ui/CodeEditor/CodeEditor";
import { Field } from "../../ui/Field/Field";
import { type FieldProps, useProblem } from "../context";
import { asText } from "../values";

const LANGUAGES: Record<string, Language> = { py: "python", ts: "typescript", json: "json" };

/** Code, in the language that the field `language` beside it names. */
export function Code({ path, label, hint, value, parent, onChange }: FieldProps) {
  const told = useProblem(path);
  const named = parent.values.language ?? parent.schema.properties?.language?.default;
  return (
    <Field label={label} hint={hint} {...told} caption>
      {() => (
        <CodeEditor
          language={LANGUAGES[String(named)] ?? "text"}
          label={label}
          description={[told.problem, hint].filter(Boolean).join(" ") || undefined}
          value={asText(value)}
          onChange={onChange}
          minLines={8}
          history="page"
        />
      )}
    </Field>
  );
}
