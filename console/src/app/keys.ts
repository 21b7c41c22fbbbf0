/** Keys: one list of what is bound now, shown by `?` and run from one listener. */
import { useEffect } from "react";
import { create } from "zustand";

export interface KeyBinding {
  /** As written for people: `Ctrl+K`, `g h`, `?`. */
  keys: string;
  what: string;
  /** Without it the browser's own event does the work, such as `copy`; the keys are only listed. */
  run?: () => void;
  /** Leave the keys to the field that has the focus. */
  notWhileTyping?: boolean;
}

const bindings = new Set<KeyBinding>();
const SINGLE = "infloop.singleKeys";

/** Whether keys without Ctrl or Alt do something; some screen readers need them to do nothing. */
export const useSingleKeys = create<{ on: boolean; set: (on: boolean) => void }>((set) => ({
  on: localStorage.getItem(SINGLE) !== "off",
  set: (on) => {
    localStorage.setItem(SINGLE, on ? "on" : "off");
    set({ on });
  },
}));

export function boundKeys(): KeyBinding[] {
  return [...bindings];
}

/** Bind keys while a component is shown. */
export function useKeys(list: KeyBinding[]): void {
  useEffect(() => {
    for (const each of list) bindings.add(each);
    return () => {
      for (const each of list) bindings.delete(each);
    };
  }, [list]);
}

let prefix = "";
let prefixTimer: ReturnType<typeof setTimeout> | undefined;

/** Listen for keys; call once. */
export function listenForKeys(): () => void {
  const pressed = (event: KeyboardEvent) => {
    if (event.defaultPrevented || event.isComposing) return;
    const name = nameOf(event);
    const isSingle = !/(Ctrl|Alt|F\d)/.test(name);
    if (isSingle && (isTyping(event.target) || !useSingleKeys.getState().on)) return;
    if (document.querySelector("dialog[open]") && name !== "Ctrl+K") return;
    const whole = prefix ? `${prefix} ${name}` : name;
    const all = [...bindings].reverse();
    const typing = isTyping(event.target);
    const found = all.find((each) => each.keys === whole && !(each.notWhileTyping && typing));
    clearTimeout(prefixTimer);
    if (found) {
      prefix = "";
      if (!found.run) return;
      event.preventDefault();
      found.run();
    } else if (all.some((each) => each.keys.startsWith(`${whole} `))) {
      prefix = whole;
      prefixTimer = setTimeout(() => {
        prefix = "";
      }, 1_500);
    } else {
      prefix = "";
    }
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}

function nameOf(event: KeyboardEvent): string {
  const parts = [];
  if (event.ctrlKey || event.metaKey) parts.push("Ctrl");
  if (event.altKey) parts.push("Alt");
  const isLetter = event.key.length === 1;
  if (event.shiftKey && (!isLetter || /[a-z]/i.test(event.key))) parts.push("Shift");
  const shown = isLetter && parts.length ? event.key.toUpperCase() : event.key;
  return [...parts, shown].join("+");
}

export function isTyping(target: EventTarget | null): boolean {
  const element = target instanceof Element ? target : null;
  return Boolean(
    element?.closest("input, textarea, select, [contenteditable=true], [data-typing]"),
  );
}
