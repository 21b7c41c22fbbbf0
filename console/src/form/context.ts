/** What all widgets of a form share. */
import { type ComponentType, createContext, useContext } from "react";
import type { Json, OfferedReference, ShownProblem } from "../api/generated";
import { problemText } from "../api/problems";
import { safeText } from "../ui/safeText";
import type { LastOutputs } from "./references";
import type { Schema, Values } from "./schema";

/** A field: where it is, what it may hold, and what it holds. */
export interface FieldProps {
  /** As problems name it: `config.command.cmd`. */
  path: string;
  label: string;
  hint?: string;
  schema: Schema;
  value: Json | undefined;
  /** The values around the field, with their schema. */
  parent: { values: Values; schema: Schema };
  /** Dotted paths below this field that are always shown. */
  main?: string[];
  variants?: string[];
  onChange: (value: Json | undefined) => void;
}

export interface FormState {
  /** Holds the `$defs`. */
  root: Schema;
  references: OfferedReference[];
  lastOutputs: LastOutputs;
  problems: ShownProblem[];
  /** Draws a field with the widget of its schema. */
  Control: ComponentType<FieldProps>;
}

export const FormContext = createContext<FormState | null>(null);

export function useForm(): FormState {
  const state = useContext(FormContext);
  if (!state) throw new Error("a field stands outside of a form");
  return state;
}

/** Whether a problem is about a field or something in it. */
export function isAt(problem: ShownProblem, path: string): boolean {
  const at = problem.field ?? "";
  return at === path || at.startsWith(`${path}.`) || at.startsWith(`${path}[`);
}

export interface FieldProblem {
  problem?: string;
  isWarning?: boolean;
}

/** Return what is wrong with a field, as one text; `inside` also with what it holds. */
export function useProblem(path: string, inside = true): FieldProblem {
  const { problems } = useForm();
  const found = problems.filter((each) => (inside ? isAt(each, path) : each.field === path));
  if (found.length === 0) return {};
  return {
    problem: found.map((each) => safeText(problemText(each))).join("\n"),
    isWarning: found.every((each) => each.severity === "warning"),
  };
}
