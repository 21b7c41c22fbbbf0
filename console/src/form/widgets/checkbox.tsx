import { useId } from "react";
import { type FieldProps, useProblem } from "../context";
import css from "../form.module.css";

/** Yes or no. */
export function Checkbox({ path, label, hint, schema, value, onChange }: FieldProps) {
  const told = useProblem(path);
  const about = useId();
  return (
    <div className={css.check}>
      <label>
        <input
          type="checkbox"
          checked={Boolean(value ?? schema.default)}
          aria-describedby={hint || told.problem ? about : undefined}
          onChange={(event) => onChange(event.target.checked)}
        />
        {label}
      </label>
      <div id={about} className={css.about}>
        {told.problem && (
          <p className={css.problem} data-warning={told.isWarning || undefined}>
            ▲ {told.problem}
          </p>
        )}
        {hint}
      </div>
    </div>
  );
}
