/** Keeps a document: in the browser at once, on the server when it is safe or asked for. */
import { createStore, type StoreApi } from "zustand";
import { ApiFailure, call } from "../api/client";
import { refresh } from "../api/query";
import type { Workflow } from "../model/workflow";
import { complain } from "../ui/Toast/toast";
import { dropDraft, keepDraft } from "./drafts";
import type { Editor } from "./editor";

export interface Saving {
  state: "saved" | "draft" | "saving" | "offline";
  /** Why it is not saved by itself; empty if it will be. */
  why: string;
  /** What the server has instead of the version that was edited. */
  conflict: Workflow | null;
}

export interface Saver extends StoreApi<Saving> {
  /** Save now; say whether the server has the document. */
  save: () => Promise<boolean>;
  /** Save under another id; return it. */
  saveCopy: (id: string, name: string) => Promise<string>;
  /** Take the merged document of a conflict, and save it. */
  resolve: (merged: Workflow) => Promise<boolean>;
  /** Say why the document must not be saved without being asked; empty if it may. */
  setHold: (why: string) => void;
  stop: () => void;
}

const IDLE_MS = 2_000;
const AT_MOST_MS = 10_000;

/** `arrange` prepares a document of the server for the editor. */
export function createSaver(editor: Editor, arrange: (workflow: Workflow) => Workflow): Saver {
  const store = createStore<Saving>(() => ({ state: "saved", why: "", conflict: null }));
  let timer: ReturnType<typeof setTimeout> | undefined;
  let working: Promise<boolean> | undefined;
  let lastSave = 0;
  let hold = "";

  const isDirty = () => editor.getState().history.present !== editor.getState().saved;
  const settle = () => {
    if (!working) store.setState({ state: isDirty() ? "draft" : "saved" });
  };
  const plan = () => {
    clearTimeout(timer);
    const { problems, checked, history } = editor.getState();
    const isBad = problems.some((problem) => problem.severity === "error");
    const why = hold || (isBad ? "it has errors" : "");
    store.setState({ why });
    if (!isDirty() || why || checked !== history.present || store.getState().conflict) return;
    const wait = Math.max(IDLE_MS, lastSave + AT_MOST_MS - Date.now());
    timer = setTimeout(() => void save(), wait);
  };

  const send = async (): Promise<boolean> => {
    clearTimeout(timer);
    const { history, saved, version } = editor.getState();
    const sent = history.present;
    if (sent === saved) return true;
    lastSave = Date.now();
    try {
      const path = { workflow_id: saved.id };
      const body = { ...sent, version };
      const answer = await call("PUT /api/workflows/{workflow_id}", { path, body });
      editor.setState({ saved: sent, version: Number(answer.workflow.version) });
      editor.setProblems(sent, answer.problems);
      refresh("GET /api/workflows");
      return true;
    } catch (error) {
      if (error instanceof ApiFailure && error.code === "stale-version") await collide();
      else if (error instanceof ApiFailure && error.isOffline) offline = true;
      else complain(error);
      return false;
    }
  };
  let offline = false;
  const collide = async () => {
    const path = { workflow_id: editor.getState().saved.id };
    const now = await call("GET /api/workflows/{workflow_id}", { path }).catch(complain);
    if (now) store.setState({ conflict: arrange(now.workflow as unknown as Workflow) });
  };
  const save = (): Promise<boolean> => {
    if (working) return working;
    store.setState({ state: "saving" });
    offline = false;
    const attempt = send().finally(() => {
      working = undefined;
      settle();
      if (offline) store.setState({ state: "offline" });
      else void keep();
    });
    working = attempt;
    return attempt;
  };
  const keep = async () => {
    const { history, saved, version } = editor.getState();
    if (history.present === saved) await dropDraft(saved.id);
    else await keepDraft({ ...saved, version }, history.present);
  };

  const unsubscribe = editor.subscribe((state, before) => {
    if (state.history.present !== before.history.present) {
      settle();
      keep().catch(complain);
    }
    plan();
  });
  settle();
  return {
    ...store,
    save,
    saveCopy: async (id, name) => {
      const body = { ...editor.getState().history.present, id, name, version: undefined };
      const answer = await call("POST /api/workflows", { body });
      refresh("GET /api/workflows");
      await dropDraft(editor.getState().saved.id);
      return String(answer.workflow.id);
    },
    resolve: (merged) => {
      const theirs = store.getState().conflict;
      if (theirs) editor.setState({ saved: theirs, version: theirs.version });
      store.setState({ conflict: null });
      editor.run({ do: "replace", workflow: merged });
      return save();
    },
    setHold: (why) => {
      hold = why;
      plan();
    },
    stop: () => {
      clearTimeout(timer);
      unsubscribe();
    },
  };
}
