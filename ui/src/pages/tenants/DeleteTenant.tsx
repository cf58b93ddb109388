import { useState } from "react";
import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { Field } from "@/design/Field/Field";
import { FormDialog } from "@/design/FormDialog/FormDialog";

/** Deletes a tenant with everything it owns; its name must be typed, because nothing brings it back. */
export function DeleteTenant({ name, onClose }: { name: string; onClose: () => void }) {
  const [typed, setTyped] = useState("");
  const { succeeded } = useOutcome("/api/v1/tenants");
  const remove = api.useMutation("delete", "/api/v1/tenants/{name}", {
    onSuccess: () => {
      succeeded(`Tenant ${name} is deleted.`);
      onClose();
    },
  });
  return (
    <FormDialog
      title={`Delete ${name}?`}
      action="Delete tenant"
      isDangerous
      onSubmit={() => remove.mutate({ params: { path: { name } } })}
      onClose={onClose}
      isBusy={remove.isPending}
      isReady={typed === name}
      error={remove.error}
    >
      <p>
        This deletes the tenant and everything it owns: runs, logs, variables, secrets, keys and accounts. The server
        refuses while the tenant has packages or active runs.
      </p>
      <Field label={`Type ${name} to confirm`}>
        {(attributes) => (
          <input {...attributes} required value={typed} onChange={(event) => setTyped(event.target.value)} />
        )}
      </Field>
    </FormDialog>
  );
}
