import { expect, test } from "vitest";
import { below, fieldsOf, resolve, type Schema, titleOf, widgetOf } from "./schema";
import { WIDGETS } from "./widgets";

const name = (schema: Schema) => widgetOf(schema, (each) => each in WIDGETS);

test.each<[Schema, string]>([
  [{ type: "string" }, "line"],
  [{ type: "string", enum: ["a", "b"] }, "select"],
  [{ type: "boolean" }, "checkbox"],
  [{ type: "integer" }, "number"],
  [{ type: "number" }, "number"],
  [{ type: "integer", widget: "duration" }, "duration"],
  [{ type: "array", items: { type: "string" } }, "list"],
  [{ type: "object", additionalProperties: { type: "string" } }, "variables"],
  [{ type: "object", properties: { a: { type: "string" } } }, "group"],
  [{ anyOf: [{ type: "boolean" }, { type: "integer" }] }, "alternatives"],
  [{ type: "string", widget: "never heard of" }, "line"],
  [{}, "json"],
])("%j is edited by %s", (schema, widget) => {
  expect(name(schema)).toBe(widget);
  expect(WIDGETS).toHaveProperty(widget);
});

test("a reference is replaced by its definition, and what stands beside it wins", () => {
  const root: Schema = { $defs: { Part: { type: "object", title: "Part", description: "inner" } } };
  const schema = resolve({ $ref: "#/$defs/Part", title: "Mine" }, root);
  expect(schema).toEqual({ type: "object", title: "Mine", description: "inner" });
  expect(resolve({ $ref: "#/$defs/Missing" }, root)).toEqual({ $ref: "#/$defs/Missing" });
});

const KINDS: Schema = {
  type: "object",
  properties: {
    kind: { type: "string", enum: ["look", "run"], default: "look" },
    look: { type: "object", properties: { pattern: { type: "string" } } },
    run: { type: "object", properties: { cmd: { type: "string" } } },
    cwd: { type: "string" },
    env: { type: "object" },
    note: { type: "string" },
  },
};

test("of several kinds only the chosen one is shown", () => {
  const keys = (values: { kind?: string }) =>
    fieldsOf(KINDS, KINDS, values, { variants: ["look", "run"] }).map((field) => field.key);
  expect(keys({})).toEqual(["kind", "look", "cwd", "env", "note"]);
  expect(keys({ kind: "run" })).toEqual(["kind", "run", "cwd", "env", "note"]);
});

test("fields that are not named as important are folded, unless there are few", () => {
  const shown = { main: ["run.cmd"], variants: ["look", "run"] };
  const fields = fieldsOf(KINDS, KINDS, { kind: "run" }, shown);
  const folded = fields.filter((field) => field.isAdvanced).map((field) => field.key);
  expect(folded).toEqual(["cwd", "env", "note"]);
  const few: Schema = { properties: { a: { type: "string" }, b: { type: "string" } } };
  expect(fieldsOf(few, few, {}, { main: ["a"] }).some((field) => field.isAdvanced)).toBe(false);
});

test("a key that selects a schema brings that schema's fields", () => {
  const choice: Schema = {
    type: "object",
    properties: { type: { enum: ["cat", "dog"] } },
    allOf: JSON.parse(`[
      {"if": {"properties": {"type": {"const": "cat"}}}, "then": {"$ref": "#/$defs/Cat"}},
      {"if": {"properties": {"type": {"const": "dog"}}}, "then": {"$ref": "#/$defs/Dog"}}
    ]`),
    $defs: {
      Cat: { type: "object", properties: { type: { const: "cat" }, purrs: { type: "boolean" } } },
      Dog: { type: "object", properties: { type: { const: "dog" }, barks: { type: "boolean" } } },
    },
  };
  const fields = fieldsOf(choice, choice, { type: "dog" });
  expect(fields.map((field) => field.key)).toEqual(["type", "barks"]);
  expect(fields[0]?.schema.enum).toEqual(["cat", "dog"]);
});

test("the texts inside a template are templates", () => {
  const schema: Schema = { template: true, properties: { a: { type: "string" } } };
  expect(fieldsOf(schema, schema, {})[0]?.schema.template).toBe(true);
});

test("a duration's title does not name milliseconds", () => {
  expect(titleOf("t", { title: "Time limit (ms)", widget: "duration" })).toBe("Time limit");
  expect(titleOf("t", { title: "Size (ms)" })).toBe("Size (ms)");
  expect(below(["command.cmd", "kind", "command.env.a"], "command")).toEqual(["cmd", "env.a"]);
});
