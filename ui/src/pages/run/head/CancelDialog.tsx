import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "@/api/client";
import { messageOf } from "@/api/problem";
import { Button } from "@/design/Button/Button";
import { Dialog } from "@/design/Dialog/Dialog";
import { Field } from "@/design/Field/Field";
import { useToast } from "@/design/Toasts/Toasts";

/** Cancels a run, with a reason that the run keeps. */
export function CancelDialog({ run, onClose }: { run: string; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const queries = useQueryClient();
  const announce = useToast();
  const cancel = api.useMutation("post", "/api/v1/runs/{run}/cancel", {
    onSuccess: () => {
      announce("The run was cancelled.");
      void queries.invalidateQueries({ queryKey: ["get", "/api/v1/runs/{run}"] });
      onClose();
    },
    onError: (error) => announce(messageOf(error), "error"),
  });
  const body = { reason: reason.trim() || "cancelled" };
  return (
    <Dialog
      title="Cancel this run"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Keep it running</Button>
          <Button
            look="danger"
            isBusy={cancel.isPending}
            onClick={() => cancel.mutate({ params: { path: { run } }, body })}
          >
            Cancel the run
          </Button>
        </>
      }
    >
      <p>
        Running tasks are stopped now, and no other task starts. Results of tasks that have succeeded are kept: a retry
        reuses them.
      </p>
      <Field label="Reason (optional)">
        {(attributes) => <input {...attributes} value={reason} onChange={(event) => setReason(event.target.value)} />}
      </Field>
    </Dialog>
  );
}
