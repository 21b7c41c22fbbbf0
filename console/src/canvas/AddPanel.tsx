import { type KeyboardEvent, type RefObject, useMemo, useState } from "react";
import type { Kind } from "../model/kinds";
import css from "./AddPanel.module.css";
import { addNode } from "./actions";
import { DRAGGED_TYPE } from "./Canvas";
import { useEditor, useEditorState } from "./editor";

interface Props {
  input: RefObject<HTMLInputElement | null>;
  /** A node was added; it has the id. */
  onAdded: (id: string) => void;
}

/** The node types, to add by click, by drag or by name. */
export function AddPanel({ input, onAdded }: Props) {
  const editor = useEditor();
  const kinds = useEditorState((state) => state.kinds);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const found = useMemo(() => kinds.all.filter((kind) => matches(kind, text)), [kinds, text]);
  const groups = useMemo(() => grouped(found), [found]);
  const inOrder = [...groups.values()].flat();
  const add = (kind: Kind | undefined) => {
    if (!kind) return;
    onAdded(addNode(editor, kind));
    setText("");
    setAt(0);
  };
  const walk = (event: KeyboardEvent<HTMLInputElement>) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((at + step + inOrder.length) % Math.max(1, inOrder.length));
    else if (event.key === "Enter") add(inOrder[at]);
    else if (event.key === "Escape") event.currentTarget.blur();
    else return;
    event.preventDefault();
  };
  return (
    <section aria-label="Add" className={css.panel}>
      <input
        ref={input}
        role="combobox"
        aria-label="Add node"
        aria-expanded="true"
        aria-controls="add-list"
        aria-activedescendant={inOrder[at] ? `add-${inOrder[at].type}` : undefined}
        aria-keyshortcuts="/"
        placeholder="Add node  /"
        className={css.input}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={walk}
      />
      <div id="add-list" role="listbox" aria-label="Node types" className={css.list}>
        {[...groups].map(([group, list]) => (
          // biome-ignore lint/a11y/useSemanticElements: options of a listbox are grouped by this role
          <div key={group} role="group" aria-label={group}>
            <div className={css.group} aria-hidden="true">
              {group}
            </div>
            {list.map((kind) => (
              // biome-ignore lint/a11y/useKeyWithClickEvents: the input above takes the keys
              <div
                key={kind.type}
                id={`add-${kind.type}`}
                role="option"
                tabIndex={-1}
                aria-selected={Boolean(text) && inOrder[at] === kind}
                className={css.kind}
                title={kind.description}
                draggable
                onDragStart={(event) => event.dataTransfer.setData(DRAGGED_TYPE, kind.type)}
                onClick={() => add(kind)}
              >
                <span className={css.stamp} aria-hidden="true">
                  {kind.stamp}
                </span>
                {kind.title}
              </div>
            ))}
          </div>
        ))}
      </div>
      {found.length === 0 && <p className="quiet">No type has these letters.</p>}
    </section>
  );
}

function matches(kind: Kind, text: string): boolean {
  const all = `${kind.title} ${kind.type} ${kind.stamp} ${kind.group}`.toLowerCase();
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}

function grouped(kinds: Kind[]): Map<string, Kind[]> {
  const groups = new Map<string, Kind[]>();
  for (const kind of kinds) groups.set(kind.group, [...(groups.get(kind.group) ?? []), kind]);
  return groups;
}
