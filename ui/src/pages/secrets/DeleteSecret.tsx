import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { ConfirmDialog } from "@/design/ConfirmDialog/ConfirmDialog";

export function DeleteSecret({ name, onClose }: { name: string; onClose: () => void }) {
  const { succeeded } = useOutcome("/api/v1/secrets");
  const remove = api.useMutation("delete", "/api/v1/secrets/{name}", {
    onSuccess: () => {
      succeeded(`Secret ${name} is deleted.`);
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={`Delete ${name}?`}
      action="Delete secret"
      onConfirm={() => remove.mutate({ params: { path: { name } } })}
      onClose={onClose}
      isBusy={remove.isPending}
      error={remove.error}
    >
      The value is lost. Tasks that read <code>{name}</code> fail from now on.
    </ConfirmDialog>
  );
}
