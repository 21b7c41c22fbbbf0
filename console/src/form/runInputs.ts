/** The inputs of a workflow, as a form: those that it declares, or else those that it refers to. */
import type { Json } from "../api/generated";
import type { Schema, Values } from "./schema";
import { asValues } from "./values";

export interface RunInput {
  name: string;
  type: string;
  description: string;
  default: Json | undefined;
  /** It has no default, so a run cannot start without it. */
  isRequired: boolean;
}

const IMPLICIT = /(?<![$\\])\{\{\s*inputs\.([A-Za-z0-9_-]+)/g;

export function inputsOf(workflow: Values): RunInput[] {
  if (Array.isArray(workflow.inputs)) {
    return workflow.inputs.map(asValues).flatMap((each) => {
      if (typeof each.name !== "string" || each.name === "") return [];
      return {
        name: each.name,
        type: String(each.type ?? "string"),
        description: String(each.description ?? ""),
        default: each.default,
        isRequired: each.default === undefined || each.default === null,
      };
    });
  }
  const found = [...JSON.stringify(workflow).matchAll(IMPLICIT)].map((match) => match[1] ?? "");
  return [...new Set(found)].map((name) => ({
    name,
    type: "text",
    description: "",
    default: undefined,
    isRequired: false,
  }));
}

/** Whether a run cannot start before somebody has typed something. */
export function needsInputs(workflow: Values): boolean {
  return inputsOf(workflow).some((input) => input.isRequired);
}

const TYPES: Record<string, Schema> = {
  string: { type: "string" },
  text: { type: "string", widget: "text" },
  number: { type: "number" },
  boolean: { type: "boolean" },
};

/** Return the schema of a form for the inputs. */
export function schemaOf(inputs: RunInput[]): Schema {
  const properties = inputs.map((input) => {
    const schema: Schema = {
      ...(TYPES[input.type] ?? TYPES.string),
      title: input.name,
      description: [input.description, input.isRequired && "Required."].filter(Boolean).join(" "),
      ...(input.isRequired ? {} : { default: input.default }),
    };
    return [input.name, schema] as const;
  });
  return { type: "object", properties: Object.fromEntries(properties) };
}

/** Return the names of inputs that are still missing. */
export function missingInputs(inputs: RunInput[], given: Values): string[] {
  const isMissing = ({ name, isRequired, type }: RunInput) =>
    isRequired && type !== "boolean" && given[name] === undefined;
  return inputs.filter(isMissing).map(({ name }) => name);
}

/** Return what is sent: a box that was not ticked is an answer too. */
export function filledInputs(inputs: RunInput[], given: Values): Values {
  const boxes = inputs.filter((input) => input.isRequired && input.type === "boolean");
  return { ...Object.fromEntries(boxes.map(({ name }) => [name, false])), ...given };
}
