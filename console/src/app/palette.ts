/** What the palette offers beside pages, workflows and runs: actions of the page that is shown. */
import { useEffect } from "react";
import { create } from "zustand";

export interface PaletteAction {
  label: string;
  run: () => void;
  /** Why it cannot be done now. */
  disabled?: string;
  keys?: string;
}

interface State {
  isOpen: boolean;
  actions: PaletteAction[];
  open: () => void;
  close: () => void;
}

export const usePalette = create<State>((set) => ({
  isOpen: false,
  actions: [],
  open: () => set({ isOpen: true }),
  close: () => set({ isOpen: false }),
}));

/** Offer actions while a page is shown; the list must be stable (`useMemo`). */
export function useActions(actions: PaletteAction[]): void {
  useEffect(() => {
    usePalette.setState((state) => ({ actions: [...state.actions, ...actions] }));
    return () =>
      usePalette.setState((state) => ({
        actions: state.actions.filter((each) => !actions.includes(each)),
      }));
  }, [actions]);
}
