import { useState } from "react";
import type { Json } from "../../api/generated";
import { type FieldProps, useForm } from "../context";
import css from "../form.module.css";
import { resolve, type Schema } from "../schema";

const NAMES: Record<string, string> = {
  boolean: "on or off",
  integer: "a whole number",
  number: "a number",
  string: "a text",
  array: "a list",
  object: "a set of fields",
};

/** A value of one of several types: first the type is chosen, then the value. */
export function Alternatives(props: FieldProps) {
  const { label, schema, value, onChange } = props;
  const { Control, root } = useForm();
  const all = (schema.anyOf ?? []).map((each) => resolve(each, root));
  const fitting = all.findIndex((each) => fits(value ?? schema.default, each));
  const [picked, setPicked] = useState<number | null>(null);
  const index = value === undefined && picked !== null ? picked : Math.max(0, fitting);
  const chosen = all[index];
  if (!chosen) return null;
  const { title: _, anyOf: __, ...shared } = schema;
  return (
    <div>
      <Control
        {...props}
        schema={{
          ...shared,
          ...chosen,
          default: fits(schema.default, chosen) ? schema.default : undefined,
        }}
      />
      <p className={css.hint}>
        <select
          aria-label={`${label} is`}
          value={index}
          onChange={(event) => {
            setPicked(Number(event.target.value));
            onChange(undefined);
          }}
        >
          {all.map((each, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the list is fixed by the schema
            <option key={at} value={at}>
              {each.title ?? NAMES[each.type ?? ""] ?? "any value"}
            </option>
          ))}
        </select>
      </p>
    </div>
  );
}

function fits(value: Json | undefined, schema: Schema): boolean {
  if (value === undefined || value === null) return false;
  if (schema.enum) return schema.enum.includes(value);
  if (Array.isArray(value)) return schema.type === "array";
  if (schema.type === "integer") return Number.isInteger(value);
  return typeof value === schema.type;
}
