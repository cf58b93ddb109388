import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { ConfirmDialog } from "@/design/ConfirmDialog/ConfirmDialog";

export function DeleteAccount({ name, onClose }: { name: string; onClose: () => void }) {
  const { succeeded } = useOutcome("/api/v1/accounts");
  const remove = api.useMutation("delete", "/api/v1/accounts/{name}", {
    onSuccess: () => {
      succeeded(`Account ${name} is deleted.`);
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={`Delete ${name}?`}
      action="Delete account"
      onConfirm={() => remove.mutate({ params: { path: { name } } })}
      onClose={onClose}
      isBusy={remove.isPending}
      error={remove.error}
    >
      The sessions of this account end at once, and it cannot sign in again.
    </ConfirmDialog>
  );
}
