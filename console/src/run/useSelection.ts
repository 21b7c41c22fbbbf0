/** Which step is shown, which lines are opened, and the keys that go from step to step. */
import { useCallback, useMemo, useState } from "react";
import { useKeys } from "../app/keys";
import { type Line, NOTHING_OPENED, type Opened, outline } from "./outline";
import type { Step } from "./steps";
import { type TreeItem, treeOf } from "./tree";
import { neighbour, nextFailure, otherRound } from "./walk";

export interface Selection {
  tree: TreeItem[];
  lines: Line[];
  toggle: (path: string, open: boolean) => void;
  unfold: (path: string) => void;
}

export function useSelection(
  steps: readonly Step[],
  selected: string,
  select: (path: string) => void,
): Selection {
  const [opened, setOpened] = useState<Opened>(NOTHING_OPENED);
  const tree = useMemo(() => treeOf(steps), [steps]);
  const lines = useMemo(() => outline(tree, opened, selected), [tree, opened, selected]);
  const toggle = useCallback(
    (path: string, open: boolean) =>
      setOpened((before) => ({ ...before, by: new Map([...before.by, [path, open]]) })),
    [],
  );
  const unfold = useCallback(
    (path: string) =>
      setOpened((before) => ({ ...before, unfolded: new Set([...before.unfolded, path]) })),
    [],
  );
  const keys = useMemo(
    () => [
      { keys: "j", what: "next step", run: () => select(neighbour(lines, selected, 1)) },
      { keys: "k", what: "previous step", run: () => select(neighbour(lines, selected, -1)) },
      { keys: "]", what: "next round", run: () => select(otherRound(steps, selected, 1)) },
      { keys: "[", what: "previous round", run: () => select(otherRound(steps, selected, -1)) },
      { keys: "n", what: "next failure", run: () => select(nextFailure(steps, selected)) },
    ],
    [lines, steps, selected, select],
  );
  useKeys(keys);
  return { tree, lines, toggle, unfold };
}
