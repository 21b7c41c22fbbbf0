/** Light or dark: as the person chose, or else as the system is. */
import { create } from "zustand";

export type Theme = "light" | "dark" | "system";
const KEY = "infloop.theme";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

export const useTheme = create<{ theme: Theme; choose: (theme: Theme) => void }>((set) => ({
  theme: (localStorage.getItem(KEY) as Theme | null) ?? "system",
  choose: (theme) => {
    localStorage.setItem(KEY, theme);
    set({ theme });
  },
}));

function apply(): void {
  const { theme } = useTheme.getState();
  const dark = theme === "dark" || (theme === "system" && prefersDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

/** Keep the page's theme as chosen, from now on. */
export function followTheme(): void {
  apply();
  useTheme.subscribe(apply);
  prefersDark.addEventListener("change", apply);
}
