import { useState } from "react";
import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { Field } from "@/design/Field/Field";
import { NameField } from "@/design/Field/NameField";
import { FormDialog } from "@/design/FormDialog/FormDialog";

interface Props {
  /** The name of the secret to replace; a new one without it. */
  secret?: string;
  onClose: () => void;
}

/** Sets a secret; what was set before cannot be read, only replaced. */
export function SecretForm({ secret, onClose }: Props) {
  const [name, setName] = useState(secret ?? "");
  const [value, setValue] = useState("");
  const { succeeded } = useOutcome("/api/v1/secrets");
  const save = api.useMutation("put", "/api/v1/secrets/{name}", {
    onSuccess: () => {
      succeeded(`Secret ${name} is set.`);
      onClose();
    },
  });
  return (
    <FormDialog
      title={secret === undefined ? "New secret" : `Replace ${secret}`}
      action="Save"
      onSubmit={() => save.mutate({ params: { path: { name } }, body: { value } })}
      onClose={onClose}
      isBusy={save.isPending}
      error={save.error}
    >
      {secret === undefined && <NameField value={name} onChange={setName} />}
      <Field label="Value" hint="The server encrypts it, and never shows it again.">
        {(attributes) => (
          <input
            {...attributes}
            required
            type="password"
            autoComplete="new-password"
            value={value}
            onChange={(event) => setValue(event.target.value)}
          />
        )}
      </Field>
    </FormDialog>
  );
}
