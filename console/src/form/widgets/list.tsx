import type { Json } from "../../api/generated";
import { Button } from "../../ui/Button/Button";
import { Field } from "../../ui/Field/Field";
import { type FieldProps, useForm, useProblem } from "../context";
import css from "../form.module.css";
import { InlineText } from "../InlineText";
import { resolve, type Schema } from "../schema";
import { asText } from "../values";

/** A list of values, each edited by the widget of its own schema. */
export function List(props: FieldProps) {
  const { path, label, hint, schema, value, onChange } = props;
  const { root } = useForm();
  const told = useProblem(path);
  const items = Array.isArray(value) ? value : [];
  const inner = resolve(schema.items ?? {}, root);
  const item: Schema = schema.template ? { ...inner, template: true } : inner;
  // Without a default, a missing list is not an empty one.
  const set = (next: Json[]) => onChange(next.length ? next : undefined);
  return (
    <Field label={label} hint={hint} {...told} caption>
      {() => (
        // biome-ignore lint/a11y/useSemanticElements: a fieldset would be drawn in this flow
        <div role="group" aria-label={label} className={css.rows}>
          {items.map((each, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: rows have no other identity
            <div key={index} className={css.item}>
              <Item
                {...props}
                item={item}
                index={index}
                value={each}
                onChange={(next) => set(items.with(index, next ?? ""))}
              />
              <Button
                look="plain"
                aria-label={`Remove ${label} ${index + 1}`}
                onClick={() => set(items.toSpliced(index, 1))}
              >
                ✕
              </Button>
            </div>
          ))}
          <Button className={css.add} onClick={() => set([...items, blank(item)])}>
            Add to {label}
          </Button>
        </div>
      )}
    </Field>
  );
}

interface ItemProps extends FieldProps {
  item: Schema;
  index: number;
}

function Item({ item, index, path, label, value, onChange, parent }: ItemProps) {
  const { Control } = useForm();
  const name = `${label} ${index + 1}`;
  if (item.type === "string" && !item.enum && !item.widget) {
    return (
      <InlineText label={name} value={asText(value)} onChange={onChange} template={item.template} />
    );
  }
  return (
    <Control
      path={`${path}[${index}]`}
      label={name}
      schema={item}
      value={value}
      parent={parent}
      onChange={onChange}
    />
  );
}

function blank(item: Schema): Json {
  if (item.default !== undefined) return item.default;
  return { object: {}, array: [], integer: 0, number: 0, boolean: false }[item.type ?? ""] ?? "";
}
