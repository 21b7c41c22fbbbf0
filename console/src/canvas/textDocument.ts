/** The document as text beside the graph, and text as a document. */
import { call } from "../api/client";
import { mapNodes, placedById, type Workflow, whyNotDrawable } from "../model/workflow";

export type Language = "json" | "yaml";

/** Why a text is no document, and on which line. */
export class TextProblem extends Error {
  constructor(
    message: string,
    readonly line?: number,
  ) {
    super(message);
  }
}

export async function textOf(workflow: Workflow, language: Language): Promise<string> {
  if (language === "json") return JSON.stringify(workflow, null, 2);
  return (await call("POST /api/workflows/loop-file", { body: workflow })).text;
}

/** Read a text. Raises TextProblem, or ApiFailure with the server's problems. */
export async function documentOf(
  text: string,
  language: Language,
  now: Workflow,
): Promise<Workflow> {
  if (language === "json") return fromJson(text, now);
  const body = { name: `${now.id}.loop.yaml`, text };
  const answer = await call("POST /api/workflows/read", { body });
  return withPlaces(answer.workflow as unknown as Workflow, now);
}

export function fromJson(text: string, now: Workflow): Workflow {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new TextProblem(message.replace(/ in JSON at position.*$/, ""), lineOf(message, text));
  }
  const why = whyNotDrawable(value);
  if (why) throw new TextProblem(why);
  const workflow = value as Workflow;
  if (workflow.id !== now.id) {
    throw new TextProblem(`The id stays ${now.id}; "Save as copy" makes a workflow of another id.`);
  }
  return workflow;
}

/** The line that a browser's message names, by number or by position. */
export function lineOf(message: string, text: string): number | undefined {
  const line = /line (\d+)/.exec(message);
  if (line) return Number(line[1]);
  const position = /position (\d+)/.exec(message);
  if (position) return text.slice(0, Number(position[1])).split("\n").length;
  return /end of JSON/i.test(message) ? text.split("\n").length : undefined;
}

/** Give nodes the places that they have in another document. */
function withPlaces(workflow: Workflow, other: Workflow): Workflow {
  const placed = placedById(other);
  const nodes = mapNodes(workflow.nodes, (node) => {
    const known = placed.get(node.id)?.node;
    const { position, size } = known ?? {};
    const isPlaced = node.position && (node.position.x !== 0 || node.position.y !== 0);
    if (isPlaced || !position) return node;
    return { ...node, position, ...(size ? { size } : {}) };
  });
  return { ...workflow, nodes };
}
