/** Places all nodes anew: a small workflow at once, a large one in a worker. */
import { tidied } from "../model/layout";
import { nodeIds, type Size, type WorkflowNode } from "../model/workflow";
import type { Editor } from "./editor";
import type { LayoutTask } from "./layoutWorker";

/** The layout of so many nodes takes less than 100 ms. */
const AT_ONCE = 60;

export async function tidy(editor: Editor, room: Size): Promise<void> {
  const { history, kinds } = editor.getState();
  const workflow = history.present;
  if (nodeIds(workflow).size <= AT_ONCE) {
    editor.run({ do: "arrange", nodes: tidied(workflow, kinds, room) });
    return;
  }
  const nodes = await inWorker({ workflow, kinds: kinds.all, room });
  // What was edited meanwhile wins: positions of another document may not fit it.
  if (editor.getState().history.present === workflow) editor.run({ do: "arrange", nodes });
}

function inWorker(task: LayoutTask): Promise<WorkflowNode[]> {
  const worker = new Worker(new URL("./layoutWorker.ts", import.meta.url), { type: "module" });
  return new Promise<WorkflowNode[]>((resolve, reject) => {
    worker.onmessage = ({ data }: MessageEvent<WorkflowNode[]>) => resolve(data);
    worker.onerror = (event) => reject(new Error(event.message || "The layout failed."));
    worker.postMessage(task);
  }).finally(() => worker.terminate());
}
