/** JSON Schema as far as forms need it: what control a value gets, and what a text in it means. */

export interface JsonSchema {
  $ref?: string;
  $defs?: Record<string, JsonSchema>;
  type?: string | string[];
  title?: string;
  description?: string;
  format?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  properties?: Record<string, JsonSchema>;
  required?: string[];
  items?: JsonSchema;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  pattern?: string;
}

export type Control = "text" | "number" | "integer" | "checkbox" | "choice" | "date" | "datetime" | "group" | "json";

export interface FormField {
  name: string;
  control: Control;
  isRequired: boolean;
  isNullable: boolean;
  hint: string;
  schema: JsonSchema;
}

type Definitions = Record<string, JsonSchema>;

/** Follows `$ref`, and takes `null` out of a union of one type and null. */
export function resolve(schema: JsonSchema, definitions: Definitions): { schema: JsonSchema; isNullable: boolean } {
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1) ?? "";
    return resolve({ ...definitions[name], ...withoutRef(schema) }, definitions);
  }
  const variants = schema.anyOf ?? schema.oneOf;
  const others = variants?.filter((variant) => variant.type !== "null");
  if (variants && others?.length === 1 && others.length < variants.length) {
    const { anyOf: _any, oneOf: _one, ...rest } = schema;
    return { schema: resolve({ ...rest, ...others[0] }, definitions).schema, isNullable: true };
  }
  return { schema, isNullable: false };
}

function withoutRef({ $ref: _, ...rest }: JsonSchema): JsonSchema {
  return rest;
}

export function controlOf(schema: JsonSchema): Control {
  if (schema.enum) return "choice";
  if (schema.properties) return "group";
  switch (schema.type) {
    case "string":
      return schema.format === "date" ? "date" : schema.format === "date-time" ? "datetime" : "text";
    case "integer":
    case "number":
      return schema.type;
    case "boolean":
      return "checkbox";
    default:
      return "json";
  }
}

export function fieldsOf(schema: JsonSchema, definitions: Definitions): FormField[] {
  return Object.entries(schema.properties ?? {}).map(([name, property]) => {
    const { schema: resolved, isNullable } = resolve(property, definitions);
    const isRequired = schema.required?.includes(name) ?? false;
    return { name, control: controlOf(resolved), isRequired, isNullable, hint: hintOf(resolved), schema: resolved };
  });
}

function hintOf(schema: JsonSchema): string {
  const bounds = [
    schema.minimum !== undefined && `at least ${schema.minimum}`,
    schema.exclusiveMinimum !== undefined && `more than ${schema.exclusiveMinimum}`,
    schema.maximum !== undefined && `at most ${schema.maximum}`,
    schema.exclusiveMaximum !== undefined && `less than ${schema.exclusiveMaximum}`,
  ].filter((bound) => bound !== false);
  return [schema.description, bounds.join(", ")].filter(Boolean).join("; ");
}

/** The values a form starts with: the defaults of the schema. Fields without one are absent. */
export function initialValues(schema: JsonSchema, definitions: Definitions): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const field of fieldsOf(schema, definitions)) {
    if (field.schema.default !== undefined) values[field.name] = field.schema.default;
    else if (field.control === "checkbox") values[field.name] = false;
    else if (field.control === "group" && field.isRequired)
      values[field.name] = initialValues(field.schema, definitions);
  }
  return values;
}

/** The value that the text in a control stands for; `undefined` is "left empty". */
export function parseText(text: string, control: Control): unknown {
  if (text === "") return undefined;
  switch (control) {
    case "integer":
    case "number":
      return Number.isNaN(Number(text)) ? text : Number(text);
    case "datetime":
      return new Date(text).toISOString();
    case "json":
      try {
        return JSON.parse(text);
      } catch {
        return text;
      }
    default:
      return text;
  }
}

/** The text that shows a value in a control. */
export function textOf(value: unknown, control: Control): string {
  if (value === undefined || value === null) return "";
  if (control === "json") return typeof value === "string" ? value : JSON.stringify(value, null, 2);
  if (control === "datetime")
    return String(value)
      .replace(/(\.\d+)?Z$/, "")
      .slice(0, 19);
  return String(value);
}
