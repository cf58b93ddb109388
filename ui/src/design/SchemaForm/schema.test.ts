import { afterEach, expect, test, vi } from "vitest";
import { type FormField, fieldsOf, initialValues, type JsonSchema, parseText, switchedGroup, textOf } from "./schema";

afterEach(() => vi.unstubAllEnvs());

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

const NODE: Record<string, JsonSchema> = {
  Node: {
    type: "object",
    properties: {
      name: { type: "string" },
      child: { anyOf: [{ $ref: "#/$defs/Node" }, { type: "null" }] },
      twin: { $ref: "#/$defs/Node" },
    },
    required: ["name", "child", "twin"],
  },
};

test("a definition that comes back is JSON, not a form inside itself", () => {
  const [, child] = fieldsOf({ $ref: "#/$defs/Node" }, NODE);
  expect(child?.control).toBe("json");
  const [outer] = fieldsOf({ properties: { node: { $ref: "#/$defs/Node" } } }, NODE);
  expect(outer?.control).toBe("group");
  expect(fieldsOf(outer?.schema ?? {}, NODE, outer?.above).map(({ control }) => control)).toEqual([
    "text",
    "json",
    "json",
  ]);
  expect(initialValues({ $ref: "#/$defs/Node" }, NODE)).toEqual({ child: null });
});

test("a group that is switched on begins with its defaults; switched off it is null, or absent where null is not allowed", () => {
  const schema: JsonSchema = {
    properties: {
      book: { $ref: "#/$defs/Book" },
      other: { anyOf: [{ $ref: "#/$defs/Book" }, { type: "null" }], default: null },
    },
  };
  const [book, other] = fieldsOf(schema, DEFINITIONS) as [FormField, FormField];
  expect(switchedGroup(book, true, DEFINITIONS)).toEqual({ bid: 1.5 });
  expect(switchedGroup(other, true, DEFINITIONS)).toEqual({ bid: 1.5 });
  expect(switchedGroup(book, false, DEFINITIONS)).toBeUndefined();
  expect(switchedGroup(other, false, DEFINITIONS)).toBeNull();
});

test.each([
  ["UTC", "2026-07-01T12:00:05"],
  ["America/New_York", "2026-07-01T08:00:05"],
  ["Asia/Kolkata", "2026-07-01T17:30:05"],
])("in %s a time is shown as it is there, and still means the same", (zone, shown) => {
  vi.stubEnv("TZ", zone);
  const noon = "2026-07-01T12:00:05.000Z";
  expect(textOf(noon, "datetime")).toBe(shown);
  expect(textOf("2026-07-01T14:00:05+02:00", "datetime")).toBe(shown);
  expect(parseText(shown, "datetime")).toBe(noon);
  expect(parseText("soon", "datetime")).toBe("soon");
});

test("says how a list and an object are typed", () => {
  const properties = {
    tags: { type: "array", items: { type: "string" }, description: "words" },
    days: { type: "array", items: { type: "integer" } },
    any: { type: "array" },
    extra: { type: "object" },
  };
  expect(fieldsOf({ properties }, {}).map(({ hint }) => hint)).toEqual([
    'words; a list in JSON, such as ["a", "b"]',
    "a list in JSON, such as [1, 2]",
    "a list in JSON, such as […]",
    'an object in JSON, such as {"a": 1}',
  ]);
});
