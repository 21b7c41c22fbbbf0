/** Triggers as the server takes them, and what its schema says about their kinds. */
import { call } from "../../api/client";
import type { Json, PluginView, TriggerList, TriggerView } from "../../api/generated";
import { queryClient, refresh } from "../../api/query";

export type JsonObject = { [key: string]: Json };

/** What only the server says about a trigger. */
const SERVERS_OWN = [
  "id",
  "mark",
  "nextAt",
  "secretSet",
  "missed",
  "lastFiredAt",
  "createdAt",
  "updatedAt",
];

/** Return a trigger as it can be sent back. */
export function asSent(trigger: TriggerView): JsonObject {
  const members = Object.entries(trigger).filter(([name]) => !SERVERS_OWN.includes(name));
  return Object.fromEntries(members) as JsonObject;
}

const LIST = ["GET /api/triggers", {}, {}];

/** Show a list of triggers at once as it will be; what is gone is asked about no more. */
export function showList(next: (triggers: TriggerView[]) => TriggerView[]): void {
  void queryClient.cancelQueries({ queryKey: LIST });
  queryClient.setQueryData<TriggerList>(LIST, (list) => list && { triggers: next(list.triggers) });
}

/** Send a trigger with changes. */
export async function change(trigger: TriggerView, changes: JsonObject): Promise<TriggerView> {
  const answer = await call("PUT /api/triggers/{trigger_id}", {
    path: { trigger_id: trigger.id },
    body: { ...asSent(trigger), ...changes },
  });
  refresh("GET /api/triggers", "GET /api/triggers/{trigger_id}/deliveries");
  return answer.trigger;
}

/** Return the field that holds the options of a kind; a kind without options takes requests. */
export function optionsField(schema: JsonObject | undefined, kind: string): string | undefined {
  const properties = (schema?.properties ?? {}) as { [key: string]: JsonObject };
  return Object.keys(properties).find((name) => properties[name]?.forKind === kind);
}

export function takesRequests(schema: JsonObject | undefined, kind: string): boolean {
  return schema !== undefined && optionsField(schema, kind) === undefined;
}

/** Return the fields of the options of a kind, each with its schema. */
export function optionFields(schema: JsonObject, name: string): [string, JsonObject][] {
  const properties = schema.properties as { [key: string]: JsonObject };
  const held = properties[name] ?? {};
  const definitions = (schema.$defs ?? {}) as { [key: string]: JsonObject };
  const definition =
    definitions[
      String(held.$ref ?? "")
        .split("/")
        .at(-1) ?? ""
    ] ?? held;
  return Object.entries((definition.properties ?? {}) as { [key: string]: JsonObject });
}

/** Return what a trigger waits for, in a few words. */
export function waitsFor(trigger: TriggerView, plugins: PluginView[]): string {
  if (trigger.schedule) return trigger.schedule.cron;
  if (trigger.files) return `${trigger.files.directory}: ${trigger.files.globs.join(", ")}`;
  const plugin = plugins.find((each) => each.id === trigger.pluginId);
  const name = plugin?.displayName ?? trigger.pluginId;
  return trigger.eventType ? `${name}: ${trigger.eventType}` : name;
}

export function dispatchAddress(trigger: TriggerView): string {
  return `/dispatch/${encodeURIComponent(trigger.mark)}`;
}
