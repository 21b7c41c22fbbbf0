/** Values of a form. What equals its default is left out, so that files stay short. */
import type { Json } from "../api/generated";
import type { Schema, Values } from "./schema";

export function isEqual(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [left, right] = [Object.entries(a), Object.entries(b)];
  return (
    left.length === right.length &&
    left.every(([key, value]) => key in b && isEqual(value, (b as Values)[key]))
  );
}

/** Whether a value says no more than a missing one. */
export function isDefault(value: Json | undefined, schema: Schema): boolean {
  if (value === undefined || value === null || value === "") return true;
  if (schema.default !== undefined) return isEqual(value, schema.default);
  return isEmptyPart(value) && !schema.items;
}

function isEmptyPart(value: Json): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

/** Return the values with one of them set, or left out where it is the default. */
export function withValue(
  values: Values,
  key: string,
  value: Json | undefined,
  schema: Schema,
): Values {
  if (value === undefined || isDefault(value, schema)) {
    const { [key]: _, ...rest } = values;
    return rest;
  }
  return { ...values, [key]: value };
}

export function asValues(value: Json | undefined): Values {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}

/** Return a value as one line of text. */
export function asText(value: Json | undefined): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
