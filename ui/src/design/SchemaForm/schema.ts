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
  /** The definitions on the way to this field: one that comes back would have no end as a form. */
  above: string[];
}

type Definitions = Record<string, JsonSchema>;

export interface Resolved {
  schema: JsonSchema;
  isNullable: boolean;
  /** The definitions that were followed. */
  names: string[];
}

/** Follows `$ref`, and takes `null` out of a union of one type and null. */
export function resolve(schema: JsonSchema, definitions: Definitions): Resolved {
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1) ?? "";
    const target = resolve({ ...definitions[name], ...withoutRef(schema) }, definitions);
    return { ...target, names: [name, ...target.names] };
  }
  const variants = schema.anyOf ?? schema.oneOf;
  const others = variants?.filter((variant) => variant.type !== "null");
  if (variants && others?.length === 1 && others.length < variants.length) {
    const { anyOf: _any, oneOf: _one, ...rest } = schema;
    return { ...resolve({ ...rest, ...others[0] }, definitions), isNullable: true };
  }
  return { schema, isNullable: false, names: [] };
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

/** The fields of an object; `above` are the definitions that it is part of. */
export function fieldsOf(schema: JsonSchema, definitions: Definitions, above: string[] = []): FormField[] {
  const root = resolve(schema, definitions);
  const path = [...above, ...root.names];
  return Object.entries(root.schema.properties ?? {}).map(([name, property]) => {
    const { schema: resolved, isNullable, names } = resolve(property, definitions);
    return {
      name,
      control: names.some((one) => path.includes(one)) ? "json" : controlOf(resolved),
      isRequired: root.schema.required?.includes(name) ?? false,
      isNullable,
      hint: hintOf(resolved),
      schema: resolved,
      above: [...path, ...names],
    };
  });
}

function hintOf(schema: JsonSchema): string {
  const bounds = [
    schema.minimum !== undefined && `at least ${schema.minimum}`,
    schema.exclusiveMinimum !== undefined && `more than ${schema.exclusiveMinimum}`,
    schema.maximum !== undefined && `at most ${schema.maximum}`,
    schema.exclusiveMaximum !== undefined && `less than ${schema.exclusiveMaximum}`,
  ].filter((bound) => bound !== false);
  return [schema.description, bounds.join(", "), jsonHint(schema)].filter(Boolean).join("; ");
}

/** What to type where no control fits: a list, or an object of any fields. */
function jsonHint(schema: JsonSchema): string {
  if (schema.type === "array") return `a list in JSON, such as ${LISTS[String(schema.items?.type)] ?? "[…]"}`;
  return schema.type === "object" && !schema.properties ? 'an object in JSON, such as {"a": 1}' : "";
}

const LISTS: Record<string, string> = {
  string: '["a", "b"]',
  integer: "[1, 2]",
  number: "[1.5, 2]",
  boolean: "[true, false]",
  object: "[{…}]",
};

/** The values a form starts with: the defaults of the schema. Fields without one are absent. */
export function initialValues(
  schema: JsonSchema,
  definitions: Definitions,
  above: string[] = [],
): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const field of fieldsOf(schema, definitions, above)) {
    if (field.schema.default !== undefined) values[field.name] = field.schema.default;
    else if (field.control === "checkbox") values[field.name] = false;
    else if (field.isRequired && field.isNullable) values[field.name] = null;
    else if (field.isRequired && field.control === "group")
      values[field.name] = initialValues(field.schema, definitions, field.above);
  }
  return values;
}

/** Whether a form may leave a field out. */
export function isOptional({ isRequired, isNullable }: FormField): boolean {
  return !isRequired || isNullable;
}

/** The value of a group after it was switched on or off. */
export function switchedGroup(field: FormField, isGiven: boolean, definitions: Definitions): unknown {
  if (!isGiven) return field.isNullable ? null : undefined;
  return field.schema.default ?? initialValues(field.schema, definitions, field.above);
}

/** The value that the text in a control stands for; `undefined` is "left empty". */
export function parseText(text: string, control: Control): unknown {
  if (text === "") return undefined;
  switch (control) {
    case "integer":
    case "number":
      return Number.isNaN(Number(text)) ? text : Number(text);
    case "datetime":
      return instantOf(text);
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
  if (control === "datetime") return localTime(new Date(String(value)));
  return String(value);
}

function instantOf(text: string): string {
  const time = new Date(text);
  return Number.isNaN(time.getTime()) ? text : time.toISOString();
}

/** A time as a control of a browser has it: in the time zone of the reader, without naming it. */
function localTime(time: Date): string {
  if (Number.isNaN(time.getTime())) return "";
  const pad = (part: number, length = 2) => String(part).padStart(length, "0");
  const day = [pad(time.getFullYear(), 4), pad(time.getMonth() + 1), pad(time.getDate())].join("-");
  return `${day}T${[time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => pad(part)).join(":")}`;
}

/** A problem of a request: "params.person.name", and what is wrong there. */
export interface FieldError {
  path: string;
  message: string;
}

/** The problem of the value at a path, or of a part of it, which has no control of its own. */
export function errorAt(errors: FieldError[], path: string): string | undefined {
  const found = errors.find((error) => error.path === path || /^[.[]/.test(partOf(error.path, path)));
  if (found === undefined) return undefined;
  const part = partOf(found.path, path).replace(/^\./, "");
  return part === "" ? found.message : `${part}: ${found.message}`;
}

const partOf = (whole: string, path: string): string => (whole.startsWith(path) ? whole.slice(path.length) : "");
