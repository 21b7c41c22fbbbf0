/** An object as rows of names and values, while names are typed and may be empty or double. */
import type { Json } from "../api/generated";
import type { Values } from "./schema";
import { isEqual } from "./values";

export interface Row {
  name: string;
  value: Json;
}

export function rowsOf(values: Values): Row[] {
  return Object.entries(values).map(([name, value]) => ({ name, value }));
}

/** Return the object that rows stand for; rows without a name are no part of it. */
export function objectOf(rows: Row[]): Values {
  return Object.fromEntries(
    rows.filter(({ name }) => name !== "").map(({ name, value }) => [name, value]),
  );
}

/** Return the typed rows if they still stand for the values, else the rows of the values. */
export function currentRows(typed: Row[], values: Values): Row[] {
  return isEqual(objectOf(typed), values) ? typed : rowsOf(values);
}

/** Return the names that are used twice. */
export function doubleNames(rows: Row[]): string[] {
  const names = rows.map(({ name }) => name).filter(Boolean);
  return [...new Set(names.filter((name, index) => names.indexOf(name) !== index))];
}

/** Return what is typed as a value: JSON if it was other than text before, else text. */
export function readValue(text: string, allowsJson: boolean): Json {
  if (!allowsJson || !/^(-?\d|true$|false$|null$|[[{"])/.test(text.trim())) return text;
  if (text.includes("{{")) return text;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

/** Return the text of a value; a text that would be read as something else is quoted. */
export function writeValue(value: Json, allowsJson: boolean): string {
  if (typeof value !== "string") return JSON.stringify(value);
  return allowsJson && readValue(value, true) !== value ? JSON.stringify(value) : value;
}
