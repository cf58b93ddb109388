import { useState } from "react";
import { Field } from "../Field/Field";
import styles from "./SchemaForm.module.css";
import { type FormField, fieldsOf, type JsonSchema, parseText, resolve, textOf } from "./schema";

type Values = Record<string, unknown>;

interface Props {
  schema: JsonSchema;
  values: Values;
  onChange: (values: Values) => void;
  /** Problems by path, as the server reports them: `params.day`. */
  errors?: { path: string; message: string }[];
  /** The path of these values in the request: "params". */
  path?: string;
}

/** A form made from a JSON Schema: a control per property, JSON where a form would be worse. */
export function SchemaForm({ schema, values, onChange, errors = [], path = "" }: Props) {
  const definitions = schema.$defs ?? {};
  const { schema: root } = resolve(schema, definitions);
  const change = (name: string, value: unknown) => {
    const { [name]: _, ...others } = values;
    onChange(value === undefined ? others : { ...others, [name]: value });
  };
  return (
    <div className={styles.form}>
      {fieldsOf(root, definitions).map((field) => {
        const below = path === "" ? field.name : `${path}.${field.name}`;
        return field.control === "group" ? (
          <fieldset key={field.name} className={styles.group}>
            <legend>{field.name}</legend>
            <SchemaForm
              schema={{ ...field.schema, $defs: definitions }}
              values={(values[field.name] as Values | undefined) ?? {}}
              onChange={(value) => change(field.name, value)}
              errors={errors}
              path={below}
            />
          </fieldset>
        ) : (
          <SchemaField
            key={field.name}
            field={field}
            value={values[field.name]}
            onChange={(value) => change(field.name, value)}
            error={errors.find((error) => error.path === below)?.message}
          />
        );
      })}
    </div>
  );
}

interface FieldProps {
  field: FormField;
  value: unknown;
  onChange: (value: unknown) => void;
  error: string | undefined;
}

function SchemaField({ field, value, onChange, error }: FieldProps) {
  const { control } = field;
  // What is typed stays as it is typed: "1." must not become "1" under the cursor.
  const [text, setText] = useState(() => textOf(value, control));
  const type = (typed: string) => {
    setText(typed);
    onChange(parseText(typed, control));
  };
  return (
    <Field label={field.isRequired ? field.name : `${field.name} (optional)`} hint={field.hint} error={error}>
      {(attributes) => {
        if (control === "checkbox") {
          const isOn = value === true;
          return <input {...attributes} type="checkbox" checked={isOn} onChange={() => onChange(!isOn)} />;
        }
        if (control === "choice") {
          return <Choice attributes={attributes} field={field} value={value} onChange={onChange} />;
        }
        if (control === "json") {
          return <textarea {...attributes} value={text} onChange={(event) => type(event.target.value)} />;
        }
        return (
          <input
            {...attributes}
            type={INPUT_TYPES[control] ?? "text"}
            step={control === "number" ? "any" : undefined}
            value={text}
            onChange={(event) => type(event.target.value)}
          />
        );
      }}
    </Field>
  );
}

const INPUT_TYPES: Record<string, string> = {
  integer: "number",
  number: "number",
  date: "date",
  datetime: "datetime-local",
};

interface ChoiceProps {
  attributes: object;
  field: FormField;
  value: unknown;
  onChange: (value: unknown) => void;
}

function Choice({ attributes, field, value, onChange }: ChoiceProps) {
  const options = field.schema.enum ?? [];
  return (
    <select
      {...attributes}
      value={options.indexOf(value)}
      onChange={(event) => onChange(options[Number(event.target.value)])}
    >
      <option value={-1}>{field.isRequired ? "Choose…" : "Not set"}</option>
      {options.map((option, index) => (
        <option key={String(option)} value={index}>
          {String(option)}
        </option>
      ))}
    </select>
  );
}
