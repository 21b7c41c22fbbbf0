import { type ReactNode, useEffect, useId, useRef } from "react";
import { Button } from "../Button/Button";
import css from "./Dialog.module.css";

interface Props {
  title: string;
  onClose: () => void;
  children: ReactNode;
  /** Buttons at the bottom, the main one last. */
  actions?: ReactNode;
  wide?: boolean;
}

/** A modal dialog: the browser's own, so focus stays inside and Escape closes it. */
export function Dialog({ title, onClose, children, actions, wide }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const shown = dialog.current;
    if (shown && !shown.open) shown.showModal();
    return () => shown?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      className={css.dialog}
      data-wide={wide || undefined}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <header className={css.header}>
        <h2 id={heading}>{title}</h2>
        <Button look="plain" aria-label="Close" onClick={onClose}>
          ✕
        </Button>
      </header>
      <div className={css.content}>{children}</div>
      {actions && <footer className={css.actions}>{actions}</footer>}
    </dialog>
  );
}
