import { expect, test } from "vitest";
import { fieldsOf, initialValues, type JsonSchema, parseText, textOf } from "./schema";

const PARAMS: JsonSchema = {
  type: "object",
  properties: {
    day: { type: "string", format: "date" },
    rows: { type: "integer", default: 12, minimum: 1 },
    mode: { enum: ["fast", "full"], default: "fast" },
    note: { anyOf: [{ type: "string" }, { type: "null" }], default: null },
    book: { $ref: "#/$defs/Book" },
    tags: { type: "array", items: { type: "string" } },
    dry: { type: "boolean" },
  },
  required: ["day", "book"],
};
const DEFINITIONS: Record<string, JsonSchema> = {
  Book: { type: "object", description: "Best bid.", properties: { bid: { type: "number", default: 1.5 } } },
};

test("each property gets the control of its type", () => {
  const fields = fieldsOf(PARAMS, DEFINITIONS);
  expect(fields.map(({ name, control, isRequired }) => [name, control, isRequired])).toEqual([
    ["day", "date", true],
    ["rows", "integer", false],
    ["mode", "choice", false],
    ["note", "text", false],
    ["book", "group", true],
    ["tags", "json", false],
    ["dry", "checkbox", false],
  ]);
  expect(fields[1]?.hint).toBe("at least 1");
  expect(fields[3]?.isNullable).toBe(true);
});

test("a form starts with the defaults, and with those of required groups", () => {
  expect(initialValues(PARAMS, DEFINITIONS)).toEqual({
    rows: 12,
    mode: "fast",
    note: null,
    book: { bid: 1.5 },
    dry: false,
  });
});

test("texts become values of the control's type, and what cannot is left for the server to refuse", () => {
  expect(parseText("", "number")).toBeUndefined();
  expect(parseText("1.5", "number")).toBe(1.5);
  expect(parseText("many", "integer")).toBe("many");
  expect(parseText('["a"]', "json")).toEqual(["a"]);
  expect(parseText("[", "json")).toBe("[");
  expect(textOf(["a"], "json")).toBe('[\n  "a"\n]');
  expect(textOf(null, "text")).toBe("");
});
