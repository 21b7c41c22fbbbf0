import { useReactFlow } from "@xyflow/react";
import { type ReactNode, useMemo, useRef, useState } from "react";
import { type KeyBinding, useKeys } from "../../app/keys";
import { type PaletteAction, useActions } from "../../app/palette";
import { duplicate, moveInto, remove, selectAll, ungroup } from "../../canvas/actions";
import { useEditor } from "../../canvas/editor";
import { FIT_OPTIONS, useFocusNode } from "../../canvas/GraphView";
import { type Choice, PickDialog } from "../../canvas/PickDialog";
import { useTidy } from "../../canvas/Toolbar";
import { handlesOf, isContainer, type Kind } from "../../model/kinds";
import { everyNode, findNode, handleOf, parentOf, placedById } from "../../model/workflow";
import { say } from "../../ui/Toast/toast";

interface Does {
  add: () => void;
  edit: () => void;
  group: (kind: Kind | undefined) => void;
  nextProblem: () => void;
  run: () => void;
  save: () => void;
}

interface Asked {
  title: string;
  label: string;
  choices: Choice[];
  onPick: (id: string) => void;
}

/** Bind the keys of the canvas; return the list that some of them ask with. */
export function useCanvasKeys(does: Does): ReactNode {
  const editor = useEditor();
  const { fitView } = useReactFlow();
  const focusNode = useFocusNode();
  const arrange = useTidy();
  const [asked, setAsked] = useState<Asked | null>(null);
  const latest = useRef({ ...does, arrange });
  latest.current = { ...does, arrange };
  const keys = useMemo<KeyBinding[]>(() => {
    const containers = () => editor.getState().kinds.all.filter((kind) => kind.container);
    const key = (keys: string, what: string, run: () => void): KeyBinding => ({
      keys,
      what,
      run,
      notWhileTyping: true,
    });
    const connect = () => {
      const { nodes, history, kinds } = editor.getState();
      const source = findNode(history.present, nodes[0] ?? "");
      if (!source) return say("Choose the node that the edge leaves first.");
      setAsked({
        title: `Connect ${source.id}`,
        label: "Lead to",
        choices: targets(editor, source.id, handlesOf(source, kinds)),
        onPick: (picked) => {
          const [handle = "", target = ""] = picked.split(" ");
          editor.run({ do: "connect", source: source.id, handle, target });
          focusNode(source.id);
        },
      });
    };
    const move = () => {
      const { nodes } = editor.getState();
      if (!nodes.length) return say("Choose the nodes to move first.");
      setAsked({
        title: `Move ${nodes.join(", ")}`,
        label: "Into",
        choices: frames(editor),
        onPick: (picked) => {
          moveInto(editor, picked === TOP ? "" : picked);
          if (nodes[0]) focusNode(nodes[0]);
        },
      });
    };
    return [
      key("/", "add a node", () => latest.current.add()),
      key("c", "connect the chosen node", connect),
      key("m", "move the chosen nodes into a frame or out", move),
      key("Delete", "remove what is chosen", () => remove(editor)),
      key("Backspace", "remove what is chosen", () => remove(editor)),
      key("Escape", "choose nothing", () => editor.select([])),
      // Also while typing: what is typed into a form is an edit like any other.
      { keys: "Ctrl+Z", what: "undo", run: editor.undo },
      { keys: "Ctrl+Shift+Z", what: "redo", run: editor.redo },
      { keys: "Ctrl+Y", what: "redo", run: editor.redo },
      { keys: "Ctrl+C", what: "copy the chosen nodes as text" },
      { keys: "Ctrl+X", what: "cut the chosen nodes" },
      { keys: "Ctrl+V", what: "paste nodes" },
      key("Ctrl+D", "duplicate", () => duplicate(editor)),
      key("Ctrl+A", "choose all nodes", () => selectAll(editor)),
      key("Ctrl+G", "group as loop", () => latest.current.group(containers()[0])),
      key("Alt+G", "group as parallel", () => latest.current.group(containers()[1])),
      key("Ctrl+Shift+G", "ungroup", () => ungroup(editor)),
      key("Shift+T", "tidy", () => latest.current.arrange()),
      key("0", "fit view", () => void fitView(FIT_OPTIONS)),
      { keys: "F8", what: "next problem", run: () => latest.current.nextProblem() },
      { keys: "Ctrl+S", what: "save", run: () => latest.current.save() },
      { keys: "Ctrl+Enter", what: "run", run: () => latest.current.run() },
    ];
  }, [editor, fitView, focusNode]);
  useKeys(keys);
  const actions = useMemo<PaletteAction[]>(
    () =>
      keys.flatMap(({ keys: written, what, run }) =>
        run && written !== "Escape" ? [{ label: what, keys: written, run }] : [],
      ),
    [keys],
  );
  useActions(actions);
  return asked && <PickDialog {...asked} onClose={() => setAsked(null)} />;
}

const TOP = "(top level)";

/** Every handle of a node with every node that it can lead to. */
function targets(
  editor: ReturnType<typeof useEditor>,
  source: string,
  handles: readonly string[],
): Choice[] {
  const { history, kinds } = editor.getState();
  const placed = placedById(history.present);
  const around = new Set(["", ...(placed.get(source)?.parents ?? []).map((parent) => parent.id)]);
  const possible = [...placed.values()].filter(
    (each) =>
      each.node.id !== source &&
      around.has(parentOf(each)) &&
      kinds.of(each.node.type).runs &&
      !kinds.of(each.node.type).isStart,
  );
  return handles.flatMap((handle) => {
    const now = history.present.edges.find(
      (edge) => edge.source === source && handleOf(edge) === handle,
    );
    return possible.map(({ node }) => ({
      id: `${handle} ${node.id}`,
      label: `${handle} → ${node.id}`,
      detail: now?.target === node.id ? "connected" : node.type,
    }));
  });
}

/** The frames that the chosen nodes can go into, and the top level. */
function frames(editor: ReturnType<typeof useEditor>): Choice[] {
  const { history, kinds, nodes } = editor.getState();
  const chosen = new Set(nodes);
  const found = [...everyNode(history.present.nodes)].filter(
    ({ node, parents }) =>
      isContainer(node, kinds) &&
      !chosen.has(node.id) &&
      !parents.some((parent) => chosen.has(parent.id)),
  );
  return [
    ...found.map(({ node, parents }) => ({
      id: node.id,
      label: [...parents.map((parent) => parent.id), node.id].join(" / "),
      detail: node.type,
    })),
    { id: TOP, label: TOP },
  ];
}
