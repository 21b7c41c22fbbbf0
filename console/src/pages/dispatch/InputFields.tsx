import { useApi } from "../../api/query";
import { Field } from "../../ui/Field/Field";
import css from "./Dispatch.module.css";
import type { Draft } from "./draft";
import type { JsonObject } from "./triggers";

interface Props {
  draft: Draft;
  onChange: (changes: Partial<Draft>) => void;
}

/** What the workflow's inputs get: texts, with `{{body.…}}` for parts of a request. */
export function InputFields({ draft, onChange }: Props) {
  const read = useApi(
    "GET /api/workflows/{workflow_id}",
    { path: { workflow_id: draft.workflowId } },
    { enabled: draft.workflowId !== "" },
  );
  const declared = (read.data?.workflow.inputs ?? []) as JsonObject[];
  if (declared.length === 0) return null;
  return (
    <fieldset className={css.group}>
      <legend>Inputs</legend>
      {declared.map((input) => {
        const name = String(input.name);
        return (
          <Field key={name} label={name} hint={`Empty: ${JSON.stringify(input.default ?? "")}`}>
            {(control) => (
              <input
                {...control}
                className={css.wide}
                value={draft.inputs[name] ?? ""}
                onChange={(event) =>
                  onChange({ inputs: { ...draft.inputs, [name]: event.target.value } })
                }
              />
            )}
          </Field>
        );
      })}
    </fieldset>
  );
}
