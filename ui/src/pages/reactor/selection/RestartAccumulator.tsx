import { useState } from "react";
import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { Button } from "@/design/Button/Button";
import { ConfirmDialog } from "@/design/ConfirmDialog/ConfirmDialog";

/** Restarts an accumulator, after asking. */
export function RestartAccumulator({ name }: { name: string }) {
  const [isAsking, setAsking] = useState(false);
  const outcome = useOutcome("/api/v1/reactors", "/api/v1/accumulators");
  const restart = api.useMutation("post", "/api/v1/accumulators/{name}/restart", {
    onSuccess: () => {
      outcome.succeeded(`${name} was restarted.`);
      setAsking(false);
    },
  });
  return (
    <div>
      <Button onClick={() => setAsking(true)}>Restart accumulator…</Button>
      {isAsking && (
        <ConfirmDialog
          title={`Restart ${name}?`}
          action="Restart"
          onConfirm={() => restart.mutate({ params: { path: { name } } })}
          onClose={() => setAsking(false)}
          isBusy={restart.isPending}
          error={restart.error}
        >
          The accumulator disconnects from its source and connects again; a source with positions continues where it
          was. Its reactors go on with the last value meanwhile.
        </ConfirmDialog>
      )}
    </div>
  );
}
