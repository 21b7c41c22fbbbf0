import { useState } from "react";
import type { Json } from "../api/generated";
import { Button } from "../ui/Button/Button";
import { safeText } from "../ui/safeText";
import css from "./InOut.module.css";

const SHOWN = 4_000;

/** A value as text; of a long one the beginning, until all of it is asked for. */
export function Value({ value }: { value: Json | undefined }) {
  const [whole, setWhole] = useState(false);
  const text = typeof value === "string" ? value : JSON.stringify(value ?? null, null, 2);
  const isCut = text.length > SHOWN && !whole;
  return (
    <div className={css.value}>
      <pre>{text ? safeText(isCut ? text.slice(0, SHOWN) : text) : "(empty)"}</pre>
      {isCut && (
        <Button onClick={() => setWhole(true)}>Show all {Math.ceil(text.length / 1_000)} kB</Button>
      )}
    </div>
  );
}

/** Names and values, in order. */
export function Values({ values, none }: { values: { [name: string]: Json }; none: string }) {
  const entries = Object.entries(values);
  if (!entries.length) return <p className="quiet">{none}</p>;
  return (
    <dl className={css.values}>
      {entries.map(([name, value]) => (
        <div key={name} className={css.pair}>
          <dt>{safeText(name)}</dt>
          <dd>
            <Value value={value} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
