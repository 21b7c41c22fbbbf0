import { type ReactNode, useEffect } from "react";
import { create } from "zustand";
import css from "./Page.module.css";

/** What the top bar shows: the names of the page, outermost first. */
export const useCrumbs = create<{ crumbs: string[] }>(() => ({ crumbs: [] }));

interface Props {
  /** Outermost first: `["Runs", "fix-tests 4f0c"]`. */
  crumbs: string[];
  /** Use the whole area, without margins: for the canvas and a run. */
  full?: boolean;
  children: ReactNode;
}

/** The content of a page. */
export function Page({ crumbs, full, children }: Props) {
  const joined = crumbs.join("\n");
  useEffect(() => useCrumbs.setState({ crumbs: joined.split("\n") }), [joined]);
  return (
    <main id="main" tabIndex={-1} className={full ? css.full : css.page}>
      {children}
    </main>
  );
}
