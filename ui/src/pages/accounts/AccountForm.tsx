import { useState } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useOutcome } from "@/api/useOutcome";
import { Field } from "@/design/Field/Field";
import { FormDialog } from "@/design/FormDialog/FormDialog";
import { RoleField } from "@/design/RoleField/RoleField";

export function AccountForm({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Schema<"Role">>("read");
  const [password, setPassword] = useState("");
  const { succeeded } = useOutcome("/api/v1/accounts");
  const create = api.useMutation("post", "/api/v1/accounts", {
    onSuccess: () => {
      succeeded(`Account ${name} is created.`);
      onClose();
    },
  });
  return (
    <FormDialog
      title="New account"
      action="Create account"
      onSubmit={() => create.mutate({ body: { name, role, password } })}
      onClose={onClose}
      isBusy={create.isPending}
      error={create.error}
    >
      <Field label="Name">
        {(attributes) => (
          <input
            {...attributes}
            required
            autoComplete="off"
            value={name}
            onChange={(event) => setName(event.target.value)}
          />
        )}
      </Field>
      <RoleField role={role} onChange={setRole} />
      <Field label="Password" hint="Tell it to the person over a safe way; the store keeps only a hash.">
        {(attributes) => (
          <input
            {...attributes}
            required
            type="password"
            autoComplete="new-password"
            value={password}
            onChange={(event) => setPassword(event.target.value)}
          />
        )}
      </Field>
    </FormDialog>
  );
}
