import type { ListedWorkflow } from "../../api/generated";

/** Whether every word of a query is in a workflow's name, id or file. */
export function matches(workflow: ListedWorkflow, query: string): boolean {
  const text = `${workflow.name} ${workflow.id} ${workflow.file}`.toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
