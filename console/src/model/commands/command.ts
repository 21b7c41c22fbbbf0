/** All edits of a workflow. Whatever changes a document is one of these. */
import type { JsonObject, Point, Workflow, WorkflowEdge, WorkflowNode } from "../workflow";

export type Command =
  /** Add nodes (with what is inside them) and edges; ids are free already. */
  | { do: "add"; nodes: WorkflowNode[]; edges?: WorkflowEdge[]; parent?: string }
  /** Remove nodes with what is inside them and their edges, and edges by key. */
  | { do: "remove"; nodes?: string[]; edges?: string[] }
  /** Draw nodes elsewhere, in the same container. */
  | { do: "move"; positions: Record<string, Point> }
  /** Draw nodes elsewhere, each container at its given size or as large as its content. */
  | { do: "arrange"; nodes: WorkflowNode[] }
  /** Move nodes into a container, or to the top level if `parent` is empty. */
  | { do: "adopt"; nodes: string[]; parent: string; positions: Record<string, Point> }
  /** Change what a node is configured to do. */
  | { do: "configure"; node: string; config: JsonObject }
  | { do: "label"; node: string; label: string }
  /** Give a node another id; edges and references follow. */
  | { do: "rename"; node: string; to: string }
  /** Lead from a handle to a node; what the handle led to before is replaced. */
  | { do: "connect"; source: string; handle: string; target: string }
  /** Wrap nodes of one container into a new one, which is left by `exit`. */
  | { do: "group"; nodes: string[]; container: WorkflowNode; exit: string }
  /** Put what is inside a container in its place. `exits` is the main handle of each child. */
  | { do: "ungroup"; node: string; exits: Record<string, string> }
  /** Take another document: edited text, or the result of a merge. */
  | { do: "replace"; workflow: Workflow };

export type CommandOf<Name extends Command["do"]> = Extract<Command, { do: Name }>;
