import { useCallback, useMemo } from "react";
import { CodeEditor } from "../ui/CodeEditor/CodeEditor";
import { Field } from "../ui/Field/Field";
import { type FieldProps, useForm, useProblem } from "./context";
import { offer, unknownReferences } from "./references";
import { asText } from "./values";

interface Props extends FieldProps {
  singleLine?: boolean;
  minLines?: number;
}

/** A text with `{{references}}`: typing `{{` lists those that exist here. */
export function TemplateField(props: Props) {
  const { path, label, hint, schema, value, onChange, singleLine, minLines } = props;
  const { references, lastOutputs } = useForm();
  const found = useProblem(path);
  const text = asText(value);
  const unknown = useMemo(() => unknownReferences(text, references), [text, references]);
  const completions = useCallback(
    (before: string) => offer(before, references, lastOutputs),
    [references, lastOutputs],
  );
  // The server's own words win; before it has answered, the editor's are shown.
  const guessed = unknown.map((each) => each.message).join("\n");
  const told = found.problem || !guessed ? found : { problem: guessed, isWarning: true };
  return (
    <Field label={label} hint={hint} {...told} caption>
      {() => (
        <CodeEditor
          language="template"
          label={label}
          description={[told.problem, hint].filter(Boolean).join(" ") || undefined}
          value={text}
          onChange={onChange}
          placeholder={asText(schema.default)}
          completions={completions}
          problems={unknown}
          singleLine={singleLine}
          minLines={minLines}
          history="page"
        />
      )}
    </Field>
  );
}
