import { useEffect } from "react";
import type { ListedWorkflow } from "../../api/generated";
import { useApi } from "../../api/query";
import type { Saver } from "../../canvas/saving";

/** Tell the saver why a workflow must not be saved by itself. */
export function useHold(saver: Saver, id: string, entry: ListedWorkflow | undefined): void {
  const triggers = useApi("GET /api/triggers");
  const why = reason(id, entry, triggers.data?.triggers);
  useEffect(() => saver.setHold(why), [saver, why]);
}

type Triggers = { enabled: boolean; workflowId: string; name: string }[];

function reason(id: string, entry: ListedWorkflow | undefined, triggers?: Triggers): string {
  if (!entry || !triggers) return "its triggers are not known yet";
  const trigger = triggers.find((each) => each.enabled && each.workflowId === id);
  if (trigger) return `the trigger ${trigger.name || "of it"} would run half an idea`;
  if (entry.source === "library") return "it is a preset; saving makes a copy of your own";
  if (entry.format === "yaml") return "it is a loop file; save a copy instead";
  return "";
}
