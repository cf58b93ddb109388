import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { ConfirmDialog } from "@/design/ConfirmDialog/ConfirmDialog";

/** Deletes a pool; the server refuses while a workflow or an active task needs it, and the dialog says which. */
export function DeletePool({ name, onClose }: { name: string; onClose: () => void }) {
  const { succeeded } = useOutcome("/api/v1/pools");
  const remove = api.useMutation("delete", "/api/v1/pools/{name}", {
    onSuccess: () => {
      succeeded(`Pool ${name} is deleted.`);
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={`Delete ${name}?`}
      action="Delete pool"
      onConfirm={() => remove.mutate({ params: { path: { name } } })}
      onClose={onClose}
      isBusy={remove.isPending}
      error={remove.error}
    >
      The server refuses if a loaded workflow or a task of an active run needs this pool.
    </ConfirmDialog>
  );
}
