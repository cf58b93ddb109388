import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { ConfirmDialog } from "@/design/ConfirmDialog/ConfirmDialog";

export function DeleteVariable({ name, onClose }: { name: string; onClose: () => void }) {
  const { succeeded } = useOutcome("/api/v1/variables");
  const remove = api.useMutation("delete", "/api/v1/variables/{name}", {
    onSuccess: () => {
      succeeded(`Variable ${name} is deleted.`);
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={`Delete ${name}?`}
      action="Delete variable"
      onConfirm={() => remove.mutate({ params: { path: { name } } })}
      onClose={onClose}
      isBusy={remove.isPending}
      error={remove.error}
    >
      Tasks that read <code>{name}</code> fail from now on.
    </ConfirmDialog>
  );
}
