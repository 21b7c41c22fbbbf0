import { type KeyboardEvent, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import { useApi } from "../../api/query";
import { Dialog } from "../../ui/Dialog/Dialog";
import { shortId } from "../../ui/format";
import { type PaletteAction, usePalette } from "../palette";
import { addressOf, ROUTES } from "../routes";
import css from "./Palette.module.css";

interface Offer extends PaletteAction {
  kind: string;
}

const SHOWN = 60;

/** Finds pages, workflows, runs and actions by some of their letters. */
export function Palette() {
  const { isOpen } = usePalette();
  return isOpen ? <OpenPalette /> : null;
}

function OpenPalette() {
  const { close, actions } = usePalette();
  const [, go] = useLocation();
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const workflows = useApi("GET /api/workflows");
  const runs = useApi("GET /api/runs", { query: { limit: 50 } });
  const offers = useMemo<Offer[]>(() => {
    const page = (label: string, kind: string, address: string): Offer => ({
      label,
      kind,
      run: () => go(address),
    });
    return [
      ...actions.map((each) => ({ ...each, kind: "action" })),
      ...ROUTES.filter((route) => route.name).map((route) =>
        page(route.name, "page", addressOf(route)),
      ),
      ...(workflows.data?.workflows ?? []).map((each) =>
        page(each.name, "workflow", `/w/${encodeURIComponent(each.id)}`),
      ),
      ...(runs.data?.runs ?? []).map((run) =>
        page(`${run.workflowName} ${shortId(run.runId)} ${run.status}`, "run", `/r/${run.runId}`),
      ),
    ];
  }, [actions, workflows.data, runs.data, go]);
  const found = offers.filter((each) => matches(each.label, text)).slice(0, SHOWN);
  const take = (offer: Offer | undefined) => {
    if (!offer || offer.disabled) return;
    close();
    offer.run();
  };
  const walk = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const next = (chosen + step + found.length) % Math.max(1, found.length);
      setChosen(next);
      list.current?.children[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      take(found[chosen]);
    }
  };
  return (
    <Dialog title="Find" onClose={close}>
      <input
        autoFocus
        role="combobox"
        aria-label="Find pages, workflows, runs and actions"
        aria-expanded="true"
        aria-controls="palette"
        aria-activedescendant={found.length ? `palette-${chosen}` : undefined}
        className={css.input}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setChosen(0);
        }}
        onKeyDown={walk}
      />
      <div id="palette" role="listbox" aria-label="Found" ref={list} className={css.list}>
        {found.map((offer, at) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the input above takes the keys
          <div
            key={`${offer.kind} ${offer.label}`}
            id={`palette-${at}`}
            role="option"
            tabIndex={-1}
            aria-selected={at === chosen}
            aria-disabled={offer.disabled ? true : undefined}
            className={css.offer}
            onClick={() => take(offer)}
          >
            <span>{offer.label}</span>
            <span className={css.kind}>{offer.disabled ?? offer.keys ?? offer.kind}</span>
          </div>
        ))}
      </div>
      {found.length === 0 && <p className="quiet">Nothing has these letters.</p>}
    </Dialog>
  );
}

/** Return whether all words of a search stand in a text. */
function matches(label: string, search: string): boolean {
  const low = label.toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => low.includes(word));
}
