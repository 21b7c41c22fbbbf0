/** Asks the server what is wrong with the document, shortly after each edit. */
import { ApiFailure, call } from "../api/client";
import { complain } from "../ui/Toast/toast";
import type { Editor } from "./editor";

const PAUSE_MS = 300;
const RETRY_MS = 3_000;

/** Check now and after every edit, until the returned function is called. */
export function keepChecking(editor: Editor): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let asked = new AbortController();
  const check = async () => {
    const document = editor.getState().history.present;
    if (editor.getState().checked === document) return;
    asked.abort();
    asked = new AbortController();
    const { signal } = asked;
    try {
      const { problems } = await call("POST /api/workflows/check", { body: document, signal });
      if (editor.getState().history.present === document) editor.setProblems(document, problems);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiFailure && error.isOffline) timer = setTimeout(check, RETRY_MS);
      else complain(error);
    }
  };
  const unsubscribe = editor.subscribe((state, before) => {
    if (state.history.present === before.history.present) return;
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE_MS);
  });
  void check();
  return () => {
    clearTimeout(timer);
    asked.abort();
    unsubscribe();
  };
}
