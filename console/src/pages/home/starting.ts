/** Beginnings: a run, a new workflow, a workflow from a file. Each returns the page to open. */
import { call } from "../../api/client";
import { refresh } from "../../api/query";

/** Start a run with the inputs' defaults. The key keeps a second click from starting a second. */
export async function startRun(workflowId: string): Promise<string> {
  const made = await call("POST /api/run", {
    body: { workflowId },
    headers: { "idempotency-key": crypto.randomUUID() },
  });
  refresh("GET /api/runs", "GET /api/triggers/queue");
  return `/r/${made.runId}`;
}

export async function newWorkflow(): Promise<string> {
  return create({
    name: "New workflow",
    nodes: [
      { id: "start", type: "start" },
      { id: "end", type: "end" },
    ],
    edges: [{ source: "start", target: "end" }],
  });
}

/** Add the workflow that a JSON file holds. */
export async function importFile(file: File): Promise<string> {
  const text = await file.text();
  try {
    return await create(JSON.parse(text));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new Error(
      `${file.name} is not JSON. \`infloop import\` takes YAML files and those of other tools.`,
    );
  }
}

async function create(body: unknown): Promise<string> {
  const { workflow } = await call("POST /api/workflows", { body });
  refresh("GET /api/workflows");
  return `/w/${encodeURIComponent(String(workflow.id))}`;
}
