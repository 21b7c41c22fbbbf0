/** The state of one open workflow: its document with history, what is chosen, what is wrong. */
import { createContext, useContext } from "react";
import { createStore, type StoreApi, useStore } from "zustand";
import type { ShownProblem } from "../api/generated";
import type { Command } from "../model/commands/command";
import { edit } from "../model/commands/edit";
import { type History, newHistory, record, redo, undo } from "../model/history";
import type { Kinds } from "../model/kinds";
import { edgeKeys, nodeIds, type Workflow } from "../model/workflow";
import { edgePlace } from "./edgePlace";
import { NodeValues } from "./perNode";

export interface EditorState {
  kinds: Kinds;
  history: History;
  /** The document as the server has it, and its version there. */
  saved: Workflow;
  version: number | undefined;
  /** Chosen nodes, the last one last, and chosen edges by key. */
  nodes: readonly string[];
  edges: readonly string[];
  problems: ShownProblem[];
  /** The document that `problems` are of. */
  checked: Workflow | null;
}

export interface Editor extends StoreApi<EditorState> {
  /** Edit the document. Edits of one `field` without a pause are undone together. */
  run: (command: Command, field?: string) => void;
  undo: () => void;
  redo: () => void;
  select: (nodes: readonly string[], edges?: readonly string[]) => void;
  /** Take what a check found in a document. */
  setProblems: (of: Workflow, problems: ShownProblem[]) => void;
  readonly problemsAt: NodeValues<ShownProblem[]>;
}

export function createEditor(workflow: Workflow, kinds: Kinds, draft?: Workflow): Editor {
  const first = newHistory(workflow);
  const store = createStore<EditorState>(() => ({
    kinds,
    history: draft ? record(first, draft, 0) : first,
    saved: workflow,
    version: workflow.version,
    nodes: [],
    edges: [],
    problems: [],
    checked: null,
  }));
  const problemsAt = new NodeValues<ShownProblem[]>();
  const go = (history: History) => {
    const { nodes, edges } = store.getState();
    const ids = nodeIds(history.present);
    const keys = new Set(edgeKeys(history.present.edges));
    store.setState({
      history,
      nodes: nodes.every((id) => ids.has(id)) ? nodes : nodes.filter((id) => ids.has(id)),
      edges: edges.every((key) => keys.has(key)) ? edges : edges.filter((key) => keys.has(key)),
    });
  };
  return {
    ...store,
    problemsAt,
    run: (command, field) => {
      const { history } = store.getState();
      const next = edit(history.present, command);
      if (next !== history.present) go(record(history, next, Date.now(), field));
    },
    undo: () => go(undo(store.getState().history)),
    redo: () => go(redo(store.getState().history)),
    select: (nodes, edges = []) => {
      const now = store.getState();
      if (equal(now.nodes, nodes) && equal(now.edges, edges)) return;
      store.setState({ nodes, edges });
    },
    setProblems: (of, problems) => {
      store.setState({ problems, checked: of });
      problemsAt.replace(byPlace(of, problems));
    },
  };
}

function equal(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((each, at) => each === other[at]);
}

function byPlace(workflow: Workflow, problems: ShownProblem[]): Map<string, ShownProblem[]> {
  const keys = edgeKeys(workflow.edges);
  const found = new Map<string, ShownProblem[]>();
  for (const problem of problems) {
    const { nodeId, edge } = problem;
    const key = typeof edge === "number" ? keys[edge] : undefined;
    const place = nodeId || (key === undefined ? "" : edgePlace(key));
    if (place) found.set(place, [...(found.get(place) ?? []), problem]);
  }
  return found;
}

export const EditorContext = createContext<Editor | null>(null);

export function useEditor(): Editor {
  const editor = useContext(EditorContext);
  if (!editor) throw new Error("no editor around this component");
  return editor;
}

export function useEditorState<T>(choose: (state: EditorState) => T): T {
  return useStore(useEditor(), choose);
}

export function useDocument(): Workflow {
  return useEditorState((state) => state.history.present);
}

/** The one node that is chosen; undefined if there are none or several. */
export function useChosenNode(): string | undefined {
  return useEditorState((state) => (state.nodes.length === 1 ? state.nodes[0] : undefined));
}
