import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useOutcome } from "@/api/useOutcome";
import { ConfirmDialog } from "@/design/ConfirmDialog/ConfirmDialog";

export function RevokeKey({ apiKey, onClose }: { apiKey: Schema<"Key">; onClose: () => void }) {
  const name = apiKey.label || apiKey.id;
  const { succeeded } = useOutcome("/api/v1/keys");
  const revoke = api.useMutation("delete", "/api/v1/keys/{key}", {
    onSuccess: () => {
      succeeded(`Key ${name} is revoked.`);
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={`Revoke ${name}?`}
      action="Revoke key"
      onConfirm={() => revoke.mutate({ params: { path: { key: apiKey.id } } })}
      onClose={onClose}
      isBusy={revoke.isPending}
      error={revoke.error}
    >
      The server refuses this key at once, and closes the connections that it has open. A revoked key cannot be used
      again.
    </ConfirmDialog>
  );
}
