import type { ReactNode } from "react";
import css from "./Pairs.module.css";

/** Names and what they stand for; on a phone one below the other. */
export function Pairs({ pairs }: { pairs: [name: string, value: ReactNode][] }) {
  return (
    <dl className={css.pairs}>
      {pairs.map(([name, value]) => (
        <div key={name} style={{ display: "contents" }}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
