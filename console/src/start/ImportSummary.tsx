import type { WorkflowDetail } from "../api/generated";
import { problemText } from "../api/problems";
import { plural } from "../ui/format";
import { safeText } from "../ui/safeText";
import css from "./ImportDialog.module.css";

const SHOWN = 20;

/** What a file holds, and what is wrong with it; it can be imported all the same. */
export function ImportSummary({ found }: { found: WorkflowDetail }) {
  const { workflow, problems } = found;
  const nodes = Array.isArray(workflow.nodes) ? workflow.nodes.length : 0;
  return (
    <div className={css.summary} role="status">
      <p>
        <strong>{safeText(String(workflow.name ?? workflow.id ?? "unnamed"))}</strong>,{" "}
        {plural(nodes, "node")}
        {problems.length ? `, ${plural(problems.length, "problem")}` : ", no problems"}
      </p>
      {problems.length > 0 && (
        <ul className={css.problems} aria-label="Problems">
          {problems.slice(0, SHOWN).map((each) => (
            <li key={`${each.place}${each.message}`} data-severity={each.severity}>
              <code>{safeText(each.place)}</code> {safeText(problemText(each))}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
