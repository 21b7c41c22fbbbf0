import { expect, test } from "vitest";
import type { OfferedReference } from "../api/generated";
import { offer, unknownReferences } from "./references";

const REFERENCES: OfferedReference[] = [
  { ref: "inputs.goal", from: "inputs", certain: true, description: "The goal." },
  { ref: "agent-1.stdout", from: "agent-1", certain: false, description: "" },
];

test("only inside open braces something is offered, and only what exists", () => {
  const labels = (before: string) => offer(before, REFERENCES, {}).map((each) => each.label);
  expect(labels("Do {{")).toEqual(["inputs.goal", "agent-1.stdout"]);
  expect(labels("Do {{ inp")).toHaveLength(2);
  for (const text of ["Do", "Do {", "{{a}} ", "\\{{", "$" + "{{"]) expect(labels(text)).toEqual([]);
});

test("the last value is shown short, harmless and on one line", () => {
  const last = { "agent-1": { stdout: `one\ntwo\u202e${"x".repeat(100)}` } };
  const found = offer("{{", REFERENCES, last).find((each) => each.label === "agent-1.stdout");
  expect(found?.detail).toMatch(/^one two\\u\{202e\}x+…$/);
  expect(found?.info).toBe("May be missing when this step runs.");
});

test("references that do not exist are found at their place, with the nearest name", () => {
  const text = "Do {{inputs.gaol}} after {{agent-1.stdout.length}} and {{ nowhere }}";
  const [first, second] = unknownReferences(text, REFERENCES);
  expect(text.slice(first?.from, first?.to)).toBe("{{inputs.gaol}}");
  expect(first?.message).toBe("{{inputs.gaol}} does not exist here. Did you mean inputs.goal?");
  expect(second?.message).toContain("{{nowhere}} does not exist here.");
});

test.each(["\\{{nowhere}}", "$" + "{{ github.ref }}", "{{ not a name }}", "{{", "plain"])(
  "%j holds no reference",
  (text) => expect(unknownReferences(text, REFERENCES)).toEqual([]),
);
