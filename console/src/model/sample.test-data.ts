import type { NodeType } from "../api/generated";
import { kindsOf } from "./kinds";
import type { Workflow, WorkflowNode } from "./workflow";

function kind(type: string, more: Partial<NodeType> = {}): NodeType {
  return {
    type,
    title: type,
    description: "",
    group: "Control",
    stamp: type.slice(0, 3).toUpperCase(),
    container: false,
    runs: true,
    isStart: false,
    isEnd: false,
    givesVerdict: false,
    summary: [],
    variants: [],
    handles: ["next", "error"],
    handlesBy: null,
    outputs: {},
    new: { id: "", type, config: {} },
    config: {},
    ...more,
  };
}

/** A catalog like the server's. */
export const KINDS = kindsOf([
  kind("start", { isStart: true, handles: ["next"] }),
  kind("end", { isEnd: true, handles: [] }),
  kind("agent", { summary: ["providerId", "prompt"] }),
  kind("condition", {
    givesVerdict: true,
    handles: ["met", "not_met", "error"],
    variants: ["sentinel", "command"],
    summary: ["kind", "sentinel.pattern", "command.cmd"],
  }),
  kind("loop", { container: true, handles: ["next", "exhausted", "error"] }),
  kind("parallel", {
    container: true,
    handles: ["all_done", "first_done", "error"],
    handlesBy: {
      field: "mode",
      handles: { "wait-all": ["all_done", "error"], race: ["first_done", "error"] },
    },
  }),
  kind("sidenote", { runs: false, handles: [] }),
]);

export function node(id: string, type = "agent", more: Partial<WorkflowNode> = {}): WorkflowNode {
  return { id, type, position: { x: 0, y: 0 }, config: {}, ...more };
}

/** `start -> a -> b -> end` by their default handles, each placed right of the one before. */
export function chain(...ids: string[]): Workflow {
  const type = (id: string) => ({ start: "start", end: "end" })[id] ?? "agent";
  return {
    id: "sample",
    name: "Sample",
    version: 1,
    nodes: ids.map((id, at) => node(id, type(id), { position: { x: at * 200, y: 40 } })),
    edges: ids.slice(1).map((id, at) => ({
      id: `e${at}`,
      source: ids[at] ?? "",
      sourceHandle: "next",
      target: id,
    })),
  };
}

/** Edges as text, in alphabetical order. */
export function arrows(workflow: Workflow): string[] {
  return workflow.edges
    .map((edge) => `${edge.source}.${edge.sourceHandle ?? "next"}>${edge.target}`)
    .sort();
}
