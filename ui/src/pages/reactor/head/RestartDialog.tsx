import { Button } from "@/design/Button/Button";
import { Dialog } from "@/design/Dialog/Dialog";
import { useReactorCommand } from "./useReactorCommand";

/** Asks before a reactor is restarted. */
export function RestartDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const { give, isPending } = useReactorCommand(name, onClose);
  return (
    <Dialog
      title={`Restart ${name}?`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="danger" isBusy={isPending} onClick={() => give("restart")}>
            Restart
          </Button>
        </>
      }
    >
      <p>
        The firing in progress ends first. The reactor then starts again with the cache that it has, together with those
        of its accumulators that have failed. Accumulators that are healthy stay connected.
      </p>
    </Dialog>
  );
}
