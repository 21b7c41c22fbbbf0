import { type KeyboardEvent, useState } from "react";
import { flushSync } from "react-dom";
import { Dialog } from "../ui/Dialog/Dialog";
import css from "./PickDialog.module.css";

export interface Choice {
  id: string;
  label: string;
  detail?: string;
}

interface Props {
  title: string;
  label: string;
  choices: Choice[];
  onPick: (id: string) => void;
  onClose: () => void;
}

/** One of a list, by typing some of its letters: a target to connect to, a frame to move into. */
export function PickDialog({ title, label, choices, onPick, onClose }: Props) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const found = choices.filter((choice) =>
    `${choice.label} ${choice.detail ?? ""}`.toLowerCase().includes(text.toLowerCase()),
  );
  const pick = (choice: Choice | undefined) => {
    if (!choice) return;
    flushSync(onClose); // nothing outside an open dialog can get the focus
    onPick(choice.id);
  };
  const walk = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((at + step + found.length) % Math.max(1, found.length));
    else if (event.key === "Enter") pick(found[at]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <input
        autoFocus
        role="combobox"
        aria-label={label}
        aria-expanded="true"
        aria-controls="pick-list"
        aria-activedescendant={found[at] ? `pick-${at}` : undefined}
        className={css.input}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={walk}
      />
      <div id="pick-list" role="listbox" aria-label={label} className={css.list}>
        {found.map((choice, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the input above takes the keys
          <div
            key={choice.id}
            id={`pick-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === at}
            className={css.choice}
            onClick={() => pick(choice)}
          >
            <span>{choice.label}</span>
            <span className={css.detail}>{choice.detail}</span>
          </div>
        ))}
      </div>
      {found.length === 0 && <p className="quiet">Nothing has these letters.</p>}
    </Dialog>
  );
}
