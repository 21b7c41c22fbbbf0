import { useCallback, useMemo } from "react";
import { CodeEditor } from "../ui/CodeEditor/CodeEditor";
import { useForm } from "./context";
import { offer, unknownReferences } from "./references";

interface Props {
  label: string;
  value: string;
  onChange: (value: string) => void;
  /** It may hold references. */
  template?: boolean;
  placeholder?: string;
}

/** A text in a row, without a caption of its own. */
export function InlineText(props: Props) {
  return props.template ? <WithReferences {...props} /> : <Plain {...props} />;
}

function Plain({ label, value, onChange, placeholder }: Props) {
  return (
    <input
      aria-label={label}
      autoComplete="off"
      value={value}
      placeholder={placeholder}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}

function WithReferences({ label, value, onChange, placeholder }: Props) {
  const { references, lastOutputs } = useForm();
  const problems = useMemo(() => unknownReferences(value, references), [value, references]);
  const completions = useCallback(
    (before: string) => offer(before, references, lastOutputs),
    [references, lastOutputs],
  );
  return (
    <CodeEditor
      language="template"
      label={label}
      description={problems.map((each) => each.message).join(" ") || undefined}
      value={value}
      onChange={onChange}
      placeholder={placeholder}
      completions={completions}
      problems={problems}
      minLines={1}
      history="page"
    />
  );
}
