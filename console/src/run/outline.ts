/** The lines of the list of steps: what is opened, and where many rounds are folded. */
import { isWithin } from "./paths";
import { hasFailed, outcomeOf, type TreeItem } from "./tree";

/** More rounds than this are folded in the middle. */
const ROUNDS_SHOWN = 12;
const FIRST_SHOWN = 3;
const LAST_SHOWN = 6;

export type Line =
  | { kind: "item"; item: TreeItem; depth: number; isOpen: boolean }
  | { kind: "fold"; path: string; count: number; depth: number; from: number; to: number };

export interface Opened {
  /** Whether an item was opened or closed by hand. */
  by: ReadonlyMap<string, boolean>;
  /** Loops whose middle is shown. */
  unfolded: ReadonlySet<string>;
}

export const NOTHING_OPENED: Opened = { by: new Map(), unfolded: new Set() };

/** Return the lines in order; what runs or failed is open, and so is what leads to `selected`. */
export function outline(items: readonly TreeItem[], opened: Opened, selected = ""): Line[] {
  const lines: Line[] = [];
  const add = (item: TreeItem, depth: number) => {
    const isOpen = opened.by.get(item.path) ?? isOpenAtFirst(item, selected);
    lines.push({ kind: "item", item, depth, isOpen: isOpen && item.children.length > 0 });
    if (isOpen) addAll(item.children, depth + 1, item.path);
  };
  const addAll = (children: readonly TreeItem[], depth: number, path: string) => {
    const isFolded = isMany(children) && !opened.unfolded.has(path);
    let hidden: TreeItem[] = [];
    const flush = () => {
      const [first, last] = [hidden[0], hidden.at(-1)];
      if (first && last) {
        const span = { from: first.round ?? 0, to: last.round ?? 0 };
        lines.push({ kind: "fold", path, count: hidden.length, depth, ...span });
      }
      hidden = [];
    };
    children.forEach((child, at) => {
      if (isFolded && isHidden(child, at, children.length, selected)) {
        hidden.push(child);
      } else {
        flush();
        add(child, depth);
      }
    });
    flush();
  };
  addAll(items, 0, "");
  return lines;
}

export function isMany(children: readonly TreeItem[]): boolean {
  return children.length > ROUNDS_SHOWN && children[0]?.kind === "round";
}

/** Whether a round is in the folded middle; one that failed or is selected never is. */
export function isHidden(round: TreeItem, at: number, count: number, selected: string): boolean {
  if (at < FIRST_SHOWN || at >= count - LAST_SHOWN) return false;
  return !hasFailed(round) && !isWithin(selected, round.path);
}

function isOpenAtFirst(item: TreeItem, selected: string): boolean {
  if (item.kind !== "round") return true;
  const outcome = outcomeOf(item);
  const leadsToSelected = selected !== item.path && isWithin(selected, item.path);
  return outcome === "running" || outcome === "failed" || leadsToSelected;
}
