import { useState } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useOutcome } from "@/api/useOutcome";
import { Field } from "@/design/Field/Field";
import { FormDialog } from "@/design/FormDialog/FormDialog";
import { RoleField } from "@/design/RoleField/RoleField";

const DAY = 86_400;
const LIFETIMES: [label: string, seconds: number | null][] = [
  ["One day", DAY],
  ["30 days", 30 * DAY],
  ["90 days", 90 * DAY],
  ["One year", 365 * DAY],
  ["Never", null],
];
const DEFAULT_LIFETIME = 2;

interface Props {
  onClose: () => void;
  onCreated: (key: Schema<"CreatedKey">) => void;
}

export function NewKeyForm({ onClose, onCreated }: Props) {
  const [label, setLabel] = useState("");
  const [role, setRole] = useState<Schema<"Role">>("read");
  const [lifetime, setLifetime] = useState(DEFAULT_LIFETIME);
  const [only, setOnly] = useState("");
  const { succeeded } = useOutcome("/api/v1/keys");
  const create = api.useMutation("post", "/api/v1/keys", {
    onSuccess: (key) => {
      succeeded(`Key ${key.id} is created.`);
      onCreated(key);
    },
  });
  const endpoints = only.split(/[\s,]+/).filter((one) => one !== "");
  const body = {
    label,
    role,
    expires: LIFETIMES[lifetime]?.[1] ?? null,
    only: endpoints.length > 0 ? endpoints : null,
  };
  return (
    <FormDialog
      title="New key"
      action="Create key"
      onSubmit={() => create.mutate({ body })}
      onClose={onClose}
      isBusy={create.isPending}
      error={create.error}
    >
      <Field label="Label" hint="What the key is for: the program, and where it runs.">
        {(attributes) => (
          <input {...attributes} required value={label} onChange={(event) => setLabel(event.target.value)} />
        )}
      </Field>
      <RoleField role={role} onChange={setRole} />
      <Field label="Expires">
        {(attributes) => (
          <select {...attributes} value={lifetime} onChange={(event) => setLifetime(Number(event.target.value))}>
            {LIFETIMES.map(([text], index) => (
              <option key={text} value={index}>
                {text}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field
        label="Only these endpoints (optional)"
        hint="accumulators:NAME or reactors:NAME, one per line. Empty: the key reaches everything that its role may."
      >
        {(attributes) => <textarea {...attributes} value={only} onChange={(event) => setOnly(event.target.value)} />}
      </Field>
    </FormDialog>
  );
}
