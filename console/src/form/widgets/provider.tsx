import { useApi } from "../../api/query";
import { Field } from "../../ui/Field/Field";
import { type FieldProps, useProblem } from "../context";
import { asText } from "../values";

/** The id of a provider, from those that there are. */
export function Provider({ path, label, hint, schema, value, onChange }: FieldProps) {
  const told = useProblem(path);
  const { data } = useApi("GET /api/providers", {}, { staleTime: 60_000 });
  const providers = data?.providers ?? [];
  const shown = asText(value ?? schema.default);
  const isKnown = shown === "" || providers.some((each) => each.id === shown);
  return (
    <Field label={label} hint={hint} {...told}>
      {(control) => (
        <select
          {...control}
          value={shown}
          aria-invalid={told.problem ? true : undefined}
          onChange={(event) => onChange(event.target.value)}
        >
          {schema.default === undefined && <option value="">not set</option>}
          {!isKnown && <option value={shown}>{data ? `${shown} (unknown)` : shown}</option>}
          {providers.map((each) => (
            <option key={each.id} value={each.id} title={each.description}>
              {each.label === each.id ? each.id : `${each.label} (${each.id})`}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
