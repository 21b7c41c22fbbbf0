import type { Json } from "../../api/generated";
import { CodeEditor } from "../../ui/CodeEditor/CodeEditor";
import { Field } from "../../ui/Field/Field";
import { type FieldProps, useProblem } from "../context";
import { useDraft } from "../draft";

/** Any value, as JSON: for what no other widget edits. */
export function JsonField(props: FieldProps) {
  const { path, label, hint } = props;
  const draft = useDraft(props, { write: (value) => JSON.stringify(value, null, 2), read: parse });
  const found = useProblem(path);
  const told = draft.isWrong ? { problem: "This is not JSON." } : found;
  return (
    <Field label={label} hint={hint} {...told} caption>
      {() => (
        <CodeEditor
          language="json"
          label={label}
          description={[told.problem, hint].filter(Boolean).join(" ") || undefined}
          value={draft.text}
          onChange={draft.type}
          history="page"
        />
      )}
    </Field>
  );
}

function parse(text: string): Json | null {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return null;
  }
}
