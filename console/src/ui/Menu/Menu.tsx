import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { Button } from "../Button/Button";
import css from "./Menu.module.css";

export interface MenuItem {
  label: string;
  onSelect: () => void;
  /** Why it cannot be chosen now. */
  disabled?: string;
}

interface Props {
  label: string;
  children: ReactNode;
  items: MenuItem[];
}

/** A button that opens a list of actions; arrow keys walk it, Escape closes it. */
export function Menu({ label, children, items }: Props) {
  const [open, setOpen] = useState(false);
  const id = useId();
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    root.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const close = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener("pointerdown", close);
    return () => removeEventListener("pointerdown", close);
  }, [open]);
  const walk = (event: KeyboardEvent) => {
    const all = [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      all[(at + step + all.length) % all.length]?.focus();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      setOpen(false);
      root.current?.querySelector("button")?.focus();
    }
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: keys of the list inside
    <div ref={root} className={css.root} onKeyDown={open ? walk : undefined}>
      <Button
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={id}
        onClick={() => setOpen(!open)}
      >
        {children}
      </Button>
      {open && (
        <div id={id} role="menu" aria-label={label} className={css.menu}>
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              className={css.item}
              aria-disabled={item.disabled ? true : undefined}
              title={item.disabled}
              onClick={() => {
                if (item.disabled) return;
                setOpen(false);
                item.onSelect();
              }}
            >
              {item.label}
              {item.disabled && <span className={css.why}>{item.disabled}</span>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
