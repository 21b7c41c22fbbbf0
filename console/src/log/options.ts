/** How logs are shown; kept in this browser. */
import { create } from "zustand";

export interface LogOptions {
  wrap: boolean;
  times: boolean;
  stderrOnly: boolean;
}

const KEY = "infloop.log";
const DEFAULT: LogOptions = { wrap: true, times: false, stderrOnly: false };

function stored(): LogOptions {
  try {
    return { ...DEFAULT, ...JSON.parse(localStorage.getItem(KEY) ?? "{}"), stderrOnly: false };
  } catch {
    return DEFAULT;
  }
}

export const useLogOptions = create<{
  options: LogOptions;
  set: (change: Partial<LogOptions>) => void;
}>((set, get) => ({
  options: stored(),
  set: (change) => {
    const options = { ...get().options, ...change };
    localStorage.setItem(KEY, JSON.stringify(options));
    set({ options });
  },
}));
