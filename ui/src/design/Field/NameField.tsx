import { Field } from "./Field";

/** The name of something new, as the server takes names of variables and secrets. */
export function NameField({ value, onChange }: { value: string; onChange: (name: string) => void }) {
  return (
    <Field label="Name" hint={RULE}>
      {(attributes) => (
        <input
          {...attributes}
          required
          pattern="[A-Za-z0-9_.\-]+"
          title={RULE}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
}

const RULE = "Letters, digits and _ . -";
