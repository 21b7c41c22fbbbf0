import type { FieldProps } from "./context";
import { asText } from "./values";

/** Return the provider that a field beside this one names; empty if none does. */
export function chosenProvider({ parent }: FieldProps): string {
  const fields = Object.entries(parent.schema.properties ?? {});
  const [key, schema] = fields.find(([, each]) => each.widget === "provider") ?? [];
  return key === undefined ? "" : asText(parent.values[key] ?? schema?.default);
}
