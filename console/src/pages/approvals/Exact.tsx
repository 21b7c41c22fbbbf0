import type { Json } from "../../api/generated";
import { safeText } from "../../ui/safeText";
import css from "./Approvals.module.css";

/** The action, whole: every member with all of its text. */
export function Exact({ details }: { details: { [key: string]: Json } }) {
  const members = Object.entries(details);
  if (members.length === 0) return null;
  return (
    <section aria-label="The exact action" className={css.exact}>
      <dl>
        {members.map(([name, value]) => (
          <div key={name}>
            <dt>{safeText(name)}</dt>
            <dd>
              <pre>
                {safeText(typeof value === "string" ? value : JSON.stringify(value, null, 2))}
              </pre>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
