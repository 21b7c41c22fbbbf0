import { type KeyboardEvent, useId } from "react";
import css from "./Tabs.module.css";

interface Props<T extends string> {
  label: string;
  tabs: { id: T; name: string }[];
  chosen: T;
  onChoose: (id: T) => void;
  children: React.ReactNode;
  className?: string;
}

/** Tabs and the panel of the chosen one. */
export function Tabs<T extends string>(props: Props<T>) {
  const { label, tabs, chosen, onChoose, children, className = "" } = props;
  const id = useId();
  const walk = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex((tab) => tab.id === chosen);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (!next) return;
    onChoose(next.id);
    document.getElementById(`${id}${next.id}`)?.focus();
  };
  return (
    <div className={`${css.tabs} ${className}`}>
      <div role="tablist" aria-label={label} className={css.list} onKeyDown={walk}>
        {tabs.map((tab) => (
          <button
            key={tab.id}
            id={`${id}${tab.id}`}
            type="button"
            role="tab"
            aria-selected={tab.id === chosen}
            aria-controls={`${id}panel`}
            tabIndex={tab.id === chosen ? 0 : -1}
            className={css.tab}
            onClick={() => onChoose(tab.id)}
          >
            {tab.name}
          </button>
        ))}
      </div>
      <div
        id={`${id}panel`}
        role="tabpanel"
        aria-labelledby={`${id}${chosen}`}
        className={css.panel}
      >
        {children}
      </div>
    </div>
  );
}
