import { useState } from "react";
import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { Field } from "@/design/Field/Field";
import { FormDialog } from "@/design/FormDialog/FormDialog";

export function TenantForm({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const { succeeded } = useOutcome("/api/v1/tenants");
  const create = api.useMutation("post", "/api/v1/tenants", {
    onSuccess: () => {
      succeeded(`Tenant ${name} is created. Create a key or an account for it next.`);
      onClose();
    },
  });
  return (
    <FormDialog
      title="New tenant"
      action="Create"
      onSubmit={() => create.mutate({ body: { name } })}
      onClose={onClose}
      isBusy={create.isPending}
      error={create.error}
    >
      <Field label="Name" hint="Nothing of one tenant is visible to another, except reactors that it shares.">
        {(attributes) => (
          <input {...attributes} required value={name} onChange={(event) => setName(event.target.value)} />
        )}
      </Field>
    </FormDialog>
  );
}
