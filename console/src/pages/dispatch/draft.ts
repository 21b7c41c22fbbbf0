/** A trigger while somebody fills in its form. */
import type { Json, Predicate, TriggerView } from "../../api/generated";
import { asSent, type JsonObject, optionsField } from "./triggers";

export interface Draft {
  name: string;
  kind: string;
  enabled: boolean;
  workflowId: string;
  pluginId: string;
  eventType: string;
  match: Predicate[];
  inputs: { [name: string]: string };
  cwd: string;
  /** The options of its kind. */
  options: JsonObject;
}

export function newDraft(kind: string): Draft {
  return {
    name: "",
    kind,
    enabled: true,
    workflowId: "",
    pluginId: "generic",
    eventType: "",
    match: [],
    inputs: {},
    cwd: "",
    options: {},
  };
}

export function draftOf(trigger: TriggerView, schema: JsonObject | undefined): Draft {
  const field = optionsField(schema, trigger.kind);
  const options = field ? (asSent(trigger)[field] as JsonObject | undefined) : undefined;
  return {
    ...newDraft(trigger.kind),
    name: trigger.name,
    enabled: trigger.enabled,
    workflowId: trigger.workflowId,
    pluginId: trigger.pluginId,
    eventType: trigger.eventType ?? "",
    match: trigger.match,
    inputs: trigger.inputs,
    cwd: trigger.cwd ?? "",
    options: options ?? {},
  };
}

/** Return the trigger that a filled-in form asks for; what is empty is left out. */
export function content(draft: Draft, schema: JsonObject | undefined, secret: string): JsonObject {
  const field = optionsField(schema, draft.kind);
  const inputs = Object.entries(draft.inputs).filter(([, value]) => value !== "");
  const made: JsonObject = {
    name: draft.name,
    kind: draft.kind,
    enabled: draft.enabled,
    workflowId: draft.workflowId,
    inputs: Object.fromEntries(inputs),
  };
  if (draft.cwd) made.cwd = draft.cwd;
  if (field) return { ...made, [field]: draft.options };
  made.pluginId = draft.pluginId;
  made.match = draft.match as unknown as Json;
  if (draft.eventType) made.eventType = draft.eventType;
  if (secret) made.secret = secret;
  return made;
}
