/** What an editor knows of node types: all of it is what the server's catalog says. */
import type { Json, NodeType } from "../api/generated";
import type { JsonObject, WorkflowNode } from "./workflow";

export type Kind = NodeType;

export interface Kinds {
  all: readonly Kind[];
  /** Also for a type that the server does not know: a plain node without a form. */
  of: (type: string) => Kind;
}

export const ERROR_HANDLE = "error";

export function kindsOf(all: readonly Kind[]): Kinds {
  const known = new Map(all.map((kind) => [kind.type, kind]));
  return { all, of: (type) => known.get(type) ?? unknownKind(type) };
}

function unknownKind(type: string): Kind {
  return {
    type,
    title: type,
    description: "This server does not know this type.",
    group: "Control",
    stamp: type.slice(0, 3).toUpperCase(),
    container: false,
    runs: true,
    isStart: false,
    isEnd: false,
    givesVerdict: false,
    summary: [],
    variants: [],
    handles: ["next", ERROR_HANDLE],
    handlesBy: null,
    outputs: {},
    new: { id: "", type, config: {} },
    config: {},
  };
}

/** The handles that a node has with its configuration. */
export function handlesOf(node: WorkflowNode, kinds: Kinds): readonly string[] {
  const { handles, handlesBy } = kinds.of(node.type);
  if (!handlesBy) return handles;
  const chosen = handlesBy.handles[String(node.config?.[handlesBy.field])];
  return chosen ?? Object.values(handlesBy.handles)[0] ?? handles;
}

/** The handle by which a node is left when all is well; empty if nothing follows it. */
export function mainHandle(node: WorkflowNode, kinds: Kinds): string {
  return handlesOf(node, kinds).find((handle) => handle !== ERROR_HANDLE) ?? "";
}

export function isContainer(node: WorkflowNode, kinds: Kinds): boolean {
  return kinds.of(node.type).container || Boolean(node.children?.length);
}

/** What a card says about a node's configuration. */
export function summaryOf(node: WorkflowNode, kinds: Kinds): string {
  const config = node.config ?? {};
  const kind = kinds.of(node.type);
  const chosen = kind.variants.length ? String(config.kind ?? kind.variants[0]) : "";
  const values = kind.summary
    .filter((path) => !isOtherVariant(path, kind, chosen))
    .map((path) => shown(valueAt(config, path)));
  return values.filter(Boolean).join(" · ");
}

function isOtherVariant(path: string, kind: Kind, chosen: string): boolean {
  const part = path.split(".")[0] ?? "";
  return part !== chosen && kind.variants.includes(part);
}

function valueAt(config: JsonObject, path: string): Json | undefined {
  let value: Json | undefined = config;
  for (const key of path.split(".")) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
    value = value[key];
  }
  return value;
}

function shown(value: Json | undefined): string {
  if (value === undefined || value === null || typeof value === "object") return "";
  return String(value).replace(/\s+/g, " ").trim().slice(0, 120);
}

/** The node that the palette adds, without its id. */
export function newNode(kind: Kind, id: string): WorkflowNode {
  const made = kind.new as unknown as WorkflowNode;
  const children = kind.container ? { children: made.children ?? [] } : {};
  return { ...made, id, type: kind.type, config: { ...made.config }, ...children };
}
