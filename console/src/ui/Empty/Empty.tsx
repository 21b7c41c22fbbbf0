import type { ReactNode } from "react";
import css from "./Empty.module.css";

/** What stands where nothing is yet, and how to get something. */
export function Empty({ children }: { children: ReactNode }) {
  return <div className={css.empty}>{children}</div>;
}
