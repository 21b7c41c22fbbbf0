import { Value } from "../run/Value";
import { safeText } from "../ui/safeText";
import { type Aligned, differingNames, type Exchange } from "./align";
import css from "./Compare.module.css";
import type { ComparedRun } from "./useSide";

const NOTHING: Exchange = { config: {}, outputs: {} };

/** What one step was given and what it gave in each run, where that differs. */
export function StepValues({ row, a, b }: { row: Aligned; a: ComparedRun; b: ComparedRun }) {
  const left = a.exchanges.get(row.path) ?? NOTHING;
  const right = b.exchanges.get(row.path) ?? NOTHING;
  const config = differingNames(left.config, right.config);
  const outputs = differingNames(left.outputs, right.outputs);
  const error = row.a?.error !== row.b?.error;
  if (!config.length && !outputs.length && !error) {
    return <p className="quiet">{row.difference || "The step is the same in both runs."}</p>;
  }
  return (
    <table className={css.table}>
      <thead>
        <tr>
          <td />
          <th scope="col">A</th>
          <th scope="col">B</th>
        </tr>
      </thead>
      <tbody>
        {error && (
          <tr>
            <th scope="row">error</th>
            <td>{safeText(row.a?.error ?? "")}</td>
            <td>{safeText(row.b?.error ?? "")}</td>
          </tr>
        )}
        {config.map((name) => (
          <tr key={`in ${name}`}>
            <th scope="row">in: {safeText(name)}</th>
            <td>{name in left.config && <Value value={left.config[name]} />}</td>
            <td>{name in right.config && <Value value={right.config[name]} />}</td>
          </tr>
        ))}
        {outputs.map((name) => (
          <tr key={`out ${name}`}>
            <th scope="row">out: {safeText(name)}</th>
            <td>{name in left.outputs && <Value value={left.outputs[name]} />}</td>
            <td>{name in right.outputs && <Value value={right.outputs[name]} />}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
