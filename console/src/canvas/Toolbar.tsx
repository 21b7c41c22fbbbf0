import { useReactFlow } from "@xyflow/react";
import { useState } from "react";
import { useStore } from "zustand";
import type { Kind } from "../model/kinds";
import { isContainer } from "../model/kinds";
import { findNode } from "../model/workflow";
import { Button } from "../ui/Button/Button";
import { Dialog } from "../ui/Dialog/Dialog";
import { plural } from "../ui/format";
import { complain } from "../ui/Toast/toast";
import { cutByGrouping, duplicate, group, remove, ungroup } from "./actions";
import { useEditor, useEditorState } from "./editor";
import { FIT_OPTIONS } from "./GraphView";
import type { Saver } from "./saving";
import css from "./Toolbar.module.css";
import { tidy } from "./tidy";

const WORDS = { saved: "Saved", draft: "Draft", saving: "Saving…", offline: "Draft, server away" };

/** Whether the work is on the server, and the button that puts it there. */
export function SavedState({ saver }: { saver: Saver }) {
  const { state, why } = useStore(saver);
  const word = state === "draft" && !why ? "Saving soon" : WORDS[state];
  return (
    <span className={css.saved}>
      <span role="status" aria-label="Saved state" title={why ? `Not saved by itself: ${why}` : ""}>
        {word}
      </span>
      {state !== "saved" && (
        <Button
          look={why ? "normal" : "plain"}
          aria-keyshortcuts="Control+S"
          title={why ? `Not saved by itself, because ${why}.` : undefined}
          disabled={state === "saving"}
          onClick={() => void saver.save()}
        >
          Save
        </Button>
      )}
    </span>
  );
}

export function UndoRedo() {
  const editor = useEditor();
  const canUndo = useEditorState((state) => state.history.past.length > 0);
  const canRedo = useEditorState((state) => state.history.future.length > 0);
  return (
    <>
      <Button
        look="plain"
        aria-label="Undo"
        title="Undo (Ctrl+Z)"
        disabled={!canUndo}
        onClick={editor.undo}
      >
        ↶
      </Button>
      <Button
        look="plain"
        aria-label="Redo"
        title="Redo (Ctrl+Shift+Z)"
        disabled={!canRedo}
        onClick={editor.redo}
      >
        ↷
      </Button>
    </>
  );
}

export function ProblemsButton({ isOpen, onClick }: { isOpen: boolean; onClick: () => void }) {
  const problems = useEditorState((state) => state.problems);
  const isBad = problems.some((problem) => problem.severity === "error");
  return (
    <Button look="plain" aria-expanded={isOpen} title="F8 goes through them" onClick={onClick}>
      {problems.length > 0 && (
        <span aria-hidden="true" className={isBad ? css.bad : css.warn}>
          ▲
        </span>
      )}
      {plural(problems.length, "problem")}
    </Button>
  );
}

/** What can be done with the chosen nodes; shown above the graph while there are some. */
export function SelectionBar({ onGroup }: { onGroup: (kind: Kind) => void }) {
  const editor = useEditor();
  const kinds = useEditorState((state) => state.kinds);
  const count = useEditorState((state) => state.nodes.length + state.edges.length);
  const hasNodes = useEditorState((state) => state.nodes.length > 0);
  const isFrame = useEditorState((state) => {
    const node = findNode(state.history.present, state.nodes[0] ?? "");
    return Boolean(node && isContainer(node, state.kinds));
  });
  if (count === 0) return null;
  return (
    <div className={css.selection} role="toolbar" aria-label="Chosen nodes">
      {hasNodes &&
        kinds.all
          .filter((kind) => kind.container)
          .map((kind) => (
            <Button key={kind.type} look="plain" onClick={() => onGroup(kind)}>
              Group as {kind.title.toLowerCase()}
            </Button>
          ))}
      {isFrame && (
        <Button look="plain" onClick={() => ungroup(editor)}>
          Ungroup
        </Button>
      )}
      {hasNodes && (
        <Button look="plain" onClick={() => duplicate(editor)}>
          Duplicate
        </Button>
      )}
      <Button look="plain" onClick={() => remove(editor)}>
        Delete
      </Button>
    </div>
  );
}

/** Zoom, fit and tidy, at the bottom of the graph. */
export function ViewBar() {
  const { zoomIn, zoomOut, fitView } = useReactFlow();
  const arrange = useTidy();
  return (
    <div className={css.view} role="toolbar" aria-label="View">
      <Button look="plain" aria-label="Zoom out" onClick={() => void zoomOut()}>
        −
      </Button>
      <Button look="plain" aria-label="Zoom in" onClick={() => void zoomIn()}>
        +
      </Button>
      <Button
        look="plain"
        aria-label="Fit view"
        title="Fit view (0)"
        onClick={() => void fitView(FIT_OPTIONS)}
      >
        Fit
      </Button>
      <Button look="plain" title="Tidy (Shift+T)" onClick={arrange}>
        Tidy
      </Button>
    </div>
  );
}

/** Place all nodes anew, so that they fit into the canvas as it is, and show all of them. */
export function useTidy(): () => void {
  const editor = useEditor();
  const { fitView } = useReactFlow();
  return () => {
    const pane = document.querySelector(".react-flow");
    // Without the margins of `FIT_OPTIONS`.
    const [width, height] = [pane?.clientWidth ?? 1_000, pane?.clientHeight ?? 700];
    tidy(editor, { width: width - 48, height: height - 72 })
      .then(() => setTimeout(() => void fitView(FIT_OPTIONS), 50))
      .catch(complain);
  };
}

/** Group the chosen nodes; name the edges first that this would cut. */
export function useGrouping() {
  const editor = useEditor();
  const [asked, setAsked] = useState<Kind | null>(null);
  const start = (kind: Kind | undefined) => {
    if (!kind || !editor.getState().nodes.length) return;
    if (cutByGrouping(editor).length) setAsked(kind);
    else group(editor, kind);
  };
  const dialog = asked && (
    <Dialog
      title={`Group as ${asked.title.toLowerCase()}?`}
      onClose={() => setAsked(null)}
      actions={
        <Button
          look="primary"
          onClick={() => {
            group(editor, asked);
            setAsked(null);
          }}
        >
          Cut and group
        </Button>
      }
    >
      <p>A group is entered at its first node. These edges lead to others and would be cut:</p>
      <ul>
        {cutByGrouping(editor).map((edge) => (
          <li key={`${edge.source} ${edge.sourceHandle} ${edge.target}`}>
            <code>
              {edge.source} → {edge.target}
            </code>
          </li>
        ))}
      </ul>
    </Dialog>
  );
  return { start, dialog };
}
