import { Field } from "@/design/Field/Field";

/** The key that a command is for. */
export function KeyField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <Field label="Key" hint={'Text as it is; numbers and tuples as JSON: 42, ["XETRA", "SAP"], or "42" for text.'}>
      {(attributes) => <input {...attributes} value={value} onChange={(event) => onChange(event.target.value)} />}
    </Field>
  );
}
