/** Beginnings of workflows. Each returns the page to open. */
import { call } from "../api/client";
import type { Json } from "../api/generated";
import { refresh } from "../api/query";
import { freeId } from "./ids";

type Content = { [key: string]: Json };

/** Save a workflow that is new here. */
export async function saveNew(content: Content): Promise<string> {
  const { version: _, createdAt: __, updatedAt: ___, ...body } = content;
  const { workflow } = await call("POST /api/workflows", { body });
  refresh("GET /api/workflows");
  return `/w/${encodeURIComponent(String(workflow.id))}`;
}

/** Save a copy under another id. */
export async function duplicate(id: string, taken: string[]): Promise<string> {
  const { workflow } = await call("GET /api/workflows/{workflow_id}", {
    path: { workflow_id: id },
  });
  const name = `${String(workflow.name ?? id)} copy`;
  return saveNew({ ...workflow, id: freeId(`${id}-copy`, taken), name });
}

/** Start the example, which needs no account. */
export async function startDemo(): Promise<string> {
  const { runId } = await call("POST /api/demo");
  refresh("GET /api/runs", "GET /api/workflows");
  return `/r/${encodeURIComponent(runId)}`;
}
