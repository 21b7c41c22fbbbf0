import { create } from "zustand";
import { ApiFailure } from "../../api/client";
import css from "./Toast.module.css";

interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

const useToasts = create<{ toasts: Toast[] }>(() => ({ toasts: [] }));
let count = 0;

function show(text: string, bad: boolean): void {
  count += 1;
  const toast = { id: count, text, bad };
  useToasts.setState(({ toasts }) => ({ toasts: [...toasts.slice(-3), toast] }));
  setTimeout(() => dismiss(toast.id), bad ? 12_000 : 4_000);
}

function dismiss(id: number): void {
  useToasts.setState(({ toasts }) => ({ toasts: toasts.filter((each) => each.id !== id) }));
}

/** Say shortly that something was done. */
export function say(text: string): void {
  show(text, false);
}

/** Say that something failed, with its id in the audit log. */
export function complain(error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  const id = error instanceof ApiFailure && error.correlationId;
  show(id ? `${text} (${id})` : text, true);
}

export function Toasts() {
  const { toasts } = useToasts();
  return (
    <div className={css.toasts} role="status" aria-label="Messages">
      {toasts.map((toast) => (
        <div key={toast.id} className={css.toast} data-bad={toast.bad || undefined}>
          <span>{toast.text}</span>
          <button
            type="button"
            className={css.close}
            aria-label="Dismiss"
            onClick={() => dismiss(toast.id)}
          >
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}
