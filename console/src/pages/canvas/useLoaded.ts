import { useEffect, useState } from "react";
import { ApiFailure, call } from "../../api/client";
import type { ShownProblem } from "../../api/generated";
import { takeDraft } from "../../canvas/drafts";
import { createEditor, type Editor } from "../../canvas/editor";
import { createSaver, type Saver } from "../../canvas/saving";
import type { Kinds } from "../../model/kinds";
import { arranged } from "../../model/layout";
import { same } from "../../model/merge";
import type { Workflow } from "../../model/workflow";
import { say } from "../../ui/Toast/toast";

export interface Loaded {
  editor: Editor;
  saver: Saver;
}

/** The room that the graph has beside rail, palette and bars. */
function room() {
  const side = innerWidth < 700 ? 24 : 380;
  return { width: Math.max(320, innerWidth - side), height: Math.max(400, innerHeight - 180) };
}

/** Open a workflow: the server's document, and the draft of it that this browser kept. */
export function useLoaded(
  id: string,
  kinds: Kinds | undefined,
): { loaded?: Loaded; error?: unknown; retry: () => void } {
  const [loaded, setLoaded] = useState<Loaded>();
  const [error, setError] = useState<unknown>();
  const [attempt, setAttempt] = useState(0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `attempt` asks to try again
  useEffect(() => {
    if (!kinds) return;
    let isOver = false;
    let made: Loaded | undefined;
    setError(undefined);
    open(id, kinds)
      .then((opened) => {
        if (isOver) opened.saver.stop();
        else {
          made = opened;
          setLoaded(opened);
        }
      })
      .catch((reason: unknown) => !isOver && setError(reason));
    return () => {
      isOver = true;
      made?.saver.stop();
      setLoaded(undefined);
    };
  }, [id, kinds, attempt]);
  return { loaded, error, retry: () => setAttempt((count) => count + 1) };
}

async function open(id: string, kinds: Kinds): Promise<Loaded> {
  const arrange = (workflow: Workflow) => arranged(workflow, kinds, room());
  const draft = await takeDraft(id).catch(() => undefined);
  const stored = await read(id).catch((error: unknown) => {
    // A draft can be edited while the server is away, and after the workflow was deleted.
    const isGone = error instanceof ApiFailure && (error.isOffline || error.status === 404);
    if (draft && isGone) return { workflow: draft.base, problems: [] };
    throw error;
  });
  const theirs = arrange(stored.workflow);
  if (!draft || same(draft.document, theirs)) {
    const editor = createEditor(theirs, kinds);
    editor.setProblems(theirs, stored.problems);
    return { editor, saver: createSaver(editor, arrange) };
  }
  const isStale = draft.base.version !== theirs.version;
  const editor = createEditor(isStale ? draft.base : theirs, kinds, draft.document);
  const saver = createSaver(editor, arrange);
  if (isStale) saver.setState({ conflict: theirs });
  else say("Your unsaved work is here again.");
  return { editor, saver };
}

async function read(id: string): Promise<{ workflow: Workflow; problems: ShownProblem[] }> {
  const answer = await call("GET /api/workflows/{workflow_id}", { path: { workflow_id: id } });
  return { workflow: answer.workflow as unknown as Workflow, problems: answer.problems };
}
