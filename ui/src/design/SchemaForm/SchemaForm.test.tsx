import { renderToStaticMarkup } from "react-dom/server";
import { expect, test } from "vitest";
import { SchemaForm } from "./SchemaForm";
import type { JsonSchema } from "./schema";

const NODE: JsonSchema = {
  $ref: "#/$defs/Node",
  $defs: {
    Node: {
      type: "object",
      properties: { name: { type: "string" }, child: { anyOf: [{ $ref: "#/$defs/Node" }, { type: "null" }] } },
    },
  },
};
const ORDER: JsonSchema = {
  properties: { limit: { anyOf: [{ type: "object", properties: { price: { type: "number" } } }, { type: "null" }] } },
};

function render(schema: JsonSchema, values: Record<string, unknown>): string {
  return renderToStaticMarkup(<SchemaForm schema={schema} values={values} onChange={() => undefined} />);
}

test("a schema that contains itself has an end as a form", () => {
  expect(render(NODE, {}).match(/<textarea/g)).toHaveLength(1);
});

test("an optional group has its fields only when it is given", () => {
  expect(render(ORDER, { limit: null })).not.toContain("price");
  expect(render(ORDER, {})).toContain("left out");
  expect(render(ORDER, { limit: {} })).toContain("price");
});
