import { useState } from "react";
import { Field } from "../Field/Field";
import { type FormField, parseText, textOf } from "./schema";

interface Props {
  field: FormField;
  value: unknown;
  onChange: (value: unknown) => void;
  error: string | undefined;
}

/** The control of one property: what its schema calls for, JSON where nothing fits better. */
export function SchemaField({ field, value, onChange, error }: Props) {
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
            step={control === "number" || control === "datetime" ? "any" : undefined}
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
