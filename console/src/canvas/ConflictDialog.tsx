import { useMemo, useState } from "react";
import { merge, type Side } from "../model/merge";
import type { Workflow } from "../model/workflow";
import { Button } from "../ui/Button/Button";
import { Dialog } from "../ui/Dialog/Dialog";
import { safeText } from "../ui/safeText";
import css from "./ConflictDialog.module.css";

interface Props {
  base: Workflow;
  mine: Workflow;
  theirs: Workflow;
  onMerge: (merged: Workflow) => void;
  onCopy: () => void;
  onClose: () => void;
}

/** Somebody saved the workflow meanwhile: merge by node, ask only where both changed the same. */
export function ConflictDialog({ base, mine, theirs, onMerge, onCopy, onClose }: Props) {
  const [choices, setChoices] = useState<Record<string, Side>>({});
  const { workflow, clashes } = useMemo(
    () => merge(base, mine, theirs, choices),
    [base, mine, theirs, choices],
  );
  const isOpen = clashes.some(({ key }) => !choices[key]);
  return (
    <Dialog
      title={`Version ${theirs.version} was saved while you edited`}
      wide
      onClose={onClose}
      actions={
        <>
          <Button onClick={onCopy}>Save as copy</Button>
          <Button look="primary" disabled={isOpen} onClick={() => onMerge(workflow)}>
            Merge and save
          </Button>
        </>
      }
    >
      {clashes.length === 0 && (
        <p>No node was changed by both, so your changes and theirs go together.</p>
      )}
      {clashes.length > 0 && <p>Both changed these. Everything else goes together.</p>}
      {clashes.map(({ key, name, mine: one, theirs: other }) => (
        <fieldset key={key} className={css.clash}>
          <legend>{name}</legend>
          {(["mine", "theirs"] as const).map((side) => (
            <div key={side} className={css.side}>
              <label>
                <input
                  type="radio"
                  name={key}
                  checked={choices[key] === side}
                  onChange={() => setChoices({ ...choices, [key]: side })}
                />{" "}
                {side === "mine" ? "Mine" : "Theirs"}
              </label>
              <pre className={css.text}>{shown(side === "mine" ? one : other)}</pre>
            </div>
          ))}
        </fieldset>
      ))}
    </Dialog>
  );
}

function shown(value: unknown): string {
  return value === undefined ? "(removed)" : safeText(JSON.stringify(value, null, 2));
}
