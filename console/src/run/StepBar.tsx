import { Button } from "../ui/Button/Button";
import { duration, money } from "../ui/format";
import { StateMark } from "../ui/StateMark/StateMark";
import { safeText } from "../ui/safeText";
import css from "./StepBar.module.css";
import type { Step } from "./steps";

interface Props {
  path: string;
  step: Step | null;
  canRewind: boolean;
  onRewind: () => void;
  onClear: () => void;
}

/** The step or round that the tabs below are about. */
export function StepBar({ path, step, canRewind, onRewind, onClear }: Props) {
  return (
    <div className={css.bar}>
      {step && <StateMark state={step.state} />}
      <code className={css.path}>{safeText(path)}</code>
      {step && (
        <span className="number quiet">
          {step.nodeType} {step.handle && `▸ ${step.handle}`} {duration(step.durationMs)}{" "}
          {step.costUsd !== null && money(step.costUsd)}
        </span>
      )}
      <span className={css.space} />
      <Button onClick={onRewind} disabled={!canRewind}>
        Rewind to here
      </Button>
      <Button look="plain" onClick={onClear} aria-label="Show the whole run">
        ✕
      </Button>
    </div>
  );
}
