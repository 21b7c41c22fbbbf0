import { expect, test } from "vitest";
import { filledInputs, inputsOf, missingInputs, needsInputs, schemaOf } from "./runInputs";
import type { Values } from "./schema";

const DECLARED: Values = {
  inputs: [
    { name: "goal", type: "text", description: "What to do." },
    { name: "rounds", type: "number", default: 3 },
    { name: "loud", type: "boolean" },
    { name: "", type: "string" },
  ],
};

test("a declared input without a default must be given", () => {
  const inputs = inputsOf(DECLARED);
  expect(inputs.map((each) => each.name)).toEqual(["goal", "rounds", "loud"]);
  expect(needsInputs(DECLARED)).toBe(true);
  expect(missingInputs(inputs, {})).toEqual(["goal"]);
  expect(missingInputs(inputs, { goal: "x" })).toEqual([]);
});

test("each type has its widget, and a default is shown", () => {
  const { properties } = schemaOf(inputsOf(DECLARED));
  expect(properties?.goal).toMatchObject({ widget: "text", description: "What to do. Required." });
  expect(properties?.rounds).toMatchObject({ type: "number", default: 3 });
  expect(properties?.loud).toMatchObject({ type: "boolean" });
});

test("a box that was not ticked is sent as no", () => {
  expect(filledInputs(inputsOf(DECLARED), { goal: "x" })).toEqual({ goal: "x", loud: false });
});

test("without a declaration every input that is referred to is an optional text", () => {
  const workflow = {
    nodes: [{ config: { prompt: "{{ inputs.goal }} {{inputs.goal}} \\{{inputs.no}}" } }],
  };
  expect(inputsOf(workflow).map((each) => each.name)).toEqual(["goal"]);
  expect(needsInputs(workflow)).toBe(false);
  expect(inputsOf({ inputs: [], nodes: workflow.nodes })).toEqual([]);
});
