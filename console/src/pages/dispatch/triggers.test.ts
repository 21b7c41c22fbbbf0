import { expect, test } from "vitest";
import type { TriggerView } from "../../api/generated";
import { asSent, optionFields, optionsField, takesRequests } from "./triggers";

const SCHEMA = {
  $defs: { Moon: { properties: { phase: { type: "string" } } } },
  properties: {
    kind: { enum: ["webhook", "moon"] },
    lunar: { $ref: "#/$defs/Moon", forKind: "moon" },
  },
};

test("a kind of trigger that the console has never heard of has its fields", () => {
  expect(optionsField(SCHEMA, "moon")).toBe("lunar");
  expect(optionFields(SCHEMA, "lunar")).toEqual([["phase", { type: "string" }]]);
  expect(takesRequests(SCHEMA, "moon")).toBe(false);
  expect(takesRequests(SCHEMA, "webhook")).toBe(true);
});

test("what only the server says is not sent back to it", () => {
  const trigger = { id: "secret-id", mark: "m", secretSet: true, missed: 0, name: "nightly" };
  expect(asSent(trigger as unknown as TriggerView)).toEqual({ name: "nightly" });
});
