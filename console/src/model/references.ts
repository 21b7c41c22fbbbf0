/** `{{node.output}}` in the texts of a configuration. */
import type { Json } from "../api/generated";
import type { WorkflowNode } from "./workflow";

// As the server reads them: not after `$` or a backslash.
const REFERENCE = /(?<![$\\])(\{\{\s*)([A-Za-z0-9_-]+)((?:\.[A-Za-z0-9_.-]+)?\s*\}\})/g;

/** Let the references of a node's texts follow renamed nodes. */
export function renameReferences(
  node: WorkflowNode,
  names: ReadonlyMap<string, string>,
): WorkflowNode {
  const config = node.config && (renamed(node.config, names) as typeof node.config);
  return config === node.config ? node : { ...node, config };
}

function renamed(value: Json, names: ReadonlyMap<string, string>): Json {
  if (typeof value === "string") {
    return value.replace(REFERENCE, (whole, open: string, name: string, rest: string) => {
      const now = names.get(name);
      return now === undefined ? whole : `${open}${now}${rest}`;
    });
  }
  if (Array.isArray(value)) {
    const made = value.map((each) => renamed(each, names));
    return made.every((each, at) => each === value[at]) ? value : made;
  }
  if (typeof value === "object" && value !== null) {
    const made = Object.entries(value).map(([key, each]) => [key, renamed(each, names)] as const);
    return made.every(([key, each]) => each === value[key]) ? value : Object.fromEntries(made);
  }
  return value;
}
