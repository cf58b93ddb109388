import { useState } from "react";
import { api } from "@/api/client";
import { messageOf } from "@/api/problem";
import { Button } from "@/design/Button/Button";
import { Dialog } from "@/design/Dialog/Dialog";
import { useToast } from "@/design/Toasts/Toasts";

/** Restarts an accumulator, after asking. */
export function RestartAccumulator({ name }: { name: string }) {
  const [isAsking, setAsking] = useState(false);
  const toast = useToast();
  const restart = api.useMutation("post", "/api/v1/accumulators/{name}/restart", {
    onSuccess: () => toast(`${name} was restarted.`),
    onError: (error) => toast(messageOf(error), "error"),
    onSettled: () => setAsking(false),
  });
  return (
    <div>
      <Button onClick={() => setAsking(true)}>Restart accumulator…</Button>
      {isAsking && (
        <Dialog
          title={`Restart ${name}?`}
          onClose={() => setAsking(false)}
          actions={
            <>
              <Button onClick={() => setAsking(false)}>Cancel</Button>
              <Button
                look="danger"
                isBusy={restart.isPending}
                onClick={() => restart.mutate({ params: { path: { name } } })}
              >
                Restart
              </Button>
            </>
          }
        >
          <p>
            The accumulator disconnects from its source and connects again; a source with positions continues where it
            was. Its reactors go on with the last value meanwhile.
          </p>
        </Dialog>
      )}
    </div>
  );
}
