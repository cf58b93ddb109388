import { useState } from "react";
import { Field } from "../Field/Field";
import { SchemaForm } from "./SchemaForm";
import { errorAt, type FieldError, type JsonSchema, parseText, resolve, textOf } from "./schema";

interface Props {
  schema: JsonSchema;
  value: unknown;
  onChange: (value: unknown) => void;
  errors?: FieldError[];
  /** The path of this value in the request: "inputs.orderbook". */
  path: string;
}

/** One value of any schema: a form for an object, JSON for everything else. */
export function SchemaValue({ schema, value, onChange, errors = [], path }: Props) {
  const { schema: root } = resolve(schema, schema.$defs ?? {});
  const [text, setText] = useState(() => textOf(value, "json"));
  if (root.properties) {
    const values = (value ?? {}) as Record<string, unknown>;
    return <SchemaForm schema={schema} values={values} onChange={onChange} errors={errors} path={path} />;
  }
  return (
    <Field label="JSON" hint={root.description} error={errorAt(errors, path)}>
      {(attributes) => (
        <textarea
          {...attributes}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            onChange(parseText(event.target.value, "json") ?? null);
          }}
        />
      )}
    </Field>
  );
}
