import { useState } from "react";
import { Button } from "../ui/Button/Button";
import { Dialog } from "../ui/Dialog/Dialog";
import { Field } from "../ui/Field/Field";

interface Props {
  onClose: () => void;
  onResume: (maxCostUsd: number) => void;
}

/** Asks what a paused run may cost in all, and resumes it. */
export function LimitDialog({ onClose, onResume }: Props) {
  const [text, setText] = useState("");
  const limit = Number(text);
  const isRight = text.trim() !== "" && Number.isFinite(limit) && limit > 0;
  return (
    <Dialog
      title="Raise the limit"
      onClose={onClose}
      actions={
        <Button look="primary" type="submit" form="limit" disabled={!isRight}>
          Resume
        </Button>
      }
    >
      <form
        id="limit"
        onSubmit={(event) => {
          event.preventDefault();
          if (isRight) onResume(limit);
        }}
      >
        <Field
          label="The run may cost, in US dollars"
          hint="In all, with what it has spent so far."
        >
          {(control) => (
            <input
              {...control}
              inputMode="decimal"
              value={text}
              onChange={(event) => setText(event.target.value)}
            />
          )}
        </Field>
      </form>
    </Dialog>
  );
}
