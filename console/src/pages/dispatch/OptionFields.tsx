import type { Json } from "../../api/generated";
import { Field } from "../../ui/Field/Field";
import css from "./Dispatch.module.css";
import type { JsonObject } from "./triggers";

interface Props {
  fields: [name: string, schema: JsonObject][];
  values: JsonObject;
  onChange: (values: JsonObject) => void;
}

/** The fields of one kind of trigger, as its schema lists them. */
export function OptionFields({ fields, values, onChange }: Props) {
  return fields.map(([name, schema]) => {
    const value = values[name] ?? schema.default ?? "";
    const set = (next: Json) => onChange({ ...values, [name]: next });
    return (
      <Field
        key={name}
        label={String(schema.title ?? name)}
        hint={
          schema.type === "array"
            ? `${schema.description ?? ""} One a line.`
            : String(schema.description ?? "")
        }
      >
        {(control) =>
          Array.isArray(schema.enum) ? (
            <select
              {...control}
              value={String(value)}
              onChange={(event) => set(event.target.value)}
            >
              {schema.enum.map((each) => (
                <option key={String(each)}>{String(each)}</option>
              ))}
            </select>
          ) : schema.type === "boolean" ? (
            <input
              {...control}
              type="checkbox"
              checked={value === true}
              onChange={(event) => set(event.target.checked)}
            />
          ) : schema.type === "integer" || schema.type === "number" ? (
            <input
              {...control}
              type="number"
              value={String(value)}
              onChange={(event) => set(Number(event.target.value))}
            />
          ) : schema.type === "array" ? (
            <textarea
              {...control}
              className={css.wide}
              rows={2}
              value={Array.isArray(value) ? value.join("\n") : ""}
              onChange={(event) => set(event.target.value.split("\n"))}
              onBlur={() =>
                Array.isArray(value) && set(value.filter((each) => String(each).trim() !== ""))
              }
            />
          ) : (
            <input
              {...control}
              className={css.wide}
              value={String(value)}
              onChange={(event) => set(event.target.value)}
            />
          )
        }
      </Field>
    );
  });
}
