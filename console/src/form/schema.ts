/** Reads the JSON Schemas of the catalog: which fields a form has, and which widget edits each. */
import type { Json } from "../api/generated";

export interface Schema {
  type?: string;
  title?: string;
  description?: string;
  default?: Json;
  const?: Json;
  enum?: Json[];
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  items?: Schema;
  required?: string[];
  anyOf?: Schema[];
  allOf?: { if?: Schema; then?: Schema }[];
  $ref?: string;
  $defs?: Record<string, Schema>;
  /** The text, and every text inside, may hold `{{references}}`. */
  template?: boolean;
  /** A loop file may name a file that holds the text. */
  file?: boolean;
  widget?: string;
  writeOnly?: boolean;
}

export type Values = { [key: string]: Json };

/** Return a schema without `$ref`; what stands beside the reference wins. */
export function resolve(schema: Schema, root: Schema): Schema {
  const name = schema.$ref?.replace("#/$defs/", "");
  const target = name === undefined ? undefined : root.$defs?.[name];
  if (!target) return schema;
  const { $ref: _, ...beside } = schema;
  return { ...resolve(target, root), ...beside };
}

/** Return the name of the widget that edits values of a resolved schema. */
export function widgetOf(schema: Schema, isKnown: (name: string) => boolean): string {
  if (schema.widget && isKnown(schema.widget)) return schema.widget;
  if (schema.enum) return "select";
  if (schema.anyOf) return "alternatives";
  if (schema.type === "boolean") return "checkbox";
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (schema.type === "array") return "list";
  if (schema.type === "object") {
    return schema.properties || schema.allOf ? "group" : "variables";
  }
  return schema.type === "string" ? "line" : "json";
}

export interface FormField {
  key: string;
  schema: Schema;
  /** Stands under "More". */
  isAdvanced: boolean;
}

interface Shown {
  /** Dotted paths of fields that are always shown. */
  main?: string[];
  /** Parts of which `kind` selects one. */
  variants?: string[];
}

const FEW = 3;

/** Return the fields of an object, in the order of its schema, for its present values. */
export function fieldsOf(
  schema: Schema,
  root: Schema,
  values: Values,
  { main = [], variants = [] }: Shown = {},
): FormField[] {
  const whole = chosen(schema, root, values);
  const properties = whole.properties ?? {};
  const kind = values.kind ?? properties.kind?.default;
  const selected = variants.length ? String(kind) : "";
  const always = new Set([
    ...main.map((path) => path.split(".")[0] ?? ""),
    ...(whole.required ?? []),
    ...(variants.length ? ["kind", selected] : []),
  ]);
  const shown = Object.entries(properties).filter(
    ([key]) => !variants.includes(key) || key === selected,
  );
  return shown.map(([key, raw]) => {
    const field = resolve(raw, root);
    const inherits = schema.template && field.template === undefined;
    return {
      key,
      schema: inherits ? { ...field, template: true } : field,
      isAdvanced: shown.length > FEW && always.size > 0 && !always.has(key),
    };
  });
}

/** Return the schema that a key of the values selects, where there are several. */
function chosen(schema: Schema, root: Schema, values: Values): Schema {
  for (const { if: test, then } of schema.allOf ?? []) {
    const [key, wanted] = Object.entries(test?.properties ?? {})[0] ?? [];
    if (key === undefined || !then || values[key] !== wanted?.const) continue;
    const inner = resolve(then, root);
    // The key itself is chosen from all its values.
    const properties = { ...inner.properties, ...schema.properties };
    return { ...schema, ...inner, properties, allOf: undefined };
  }
  return schema;
}

/** Return the part of dotted paths below a key. */
export function below(paths: string[], key: string): string[] {
  return paths
    .filter((path) => path.startsWith(`${key}.`))
    .map((path) => path.slice(key.length + 1));
}

/** Return the title of a field; a duration is typed with its unit. */
export function titleOf(key: string, schema: Schema): string {
  const title = schema.title ?? key;
  return schema.widget === "duration" ? title.replace(/ \(ms\)$/, "") : title;
}
