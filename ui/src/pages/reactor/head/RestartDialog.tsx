import { ConfirmDialog } from "@/design/ConfirmDialog/ConfirmDialog";
import { useReactorCommand } from "./useReactorCommand";

/** Asks before a reactor is restarted. */
export function RestartDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const { give, isPending, error } = useReactorCommand(name, onClose);
  return (
    <ConfirmDialog
      title={`Restart ${name}?`}
      action="Restart"
      onConfirm={() => give("restart")}
      onClose={onClose}
      isBusy={isPending}
      error={error}
    >
      The firing in progress ends first. The reactor then starts again with the cache that it has, together with those
      of its accumulators that have failed. Accumulators that are healthy stay connected.
    </ConfirmDialog>
  );
}
