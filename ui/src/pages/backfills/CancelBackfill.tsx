import { useState } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useOutcome } from "@/api/useOutcome";
import { Button } from "@/design/Button/Button";
import { ConfirmDialog } from "@/design/ConfirmDialog/ConfirmDialog";

/** Cancels a backfill, after it has said what that means. */
export function CancelBackfill({ backfill }: { backfill: Schema<"BackfillInfo"> }) {
  const [isAsking, setAsking] = useState(false);
  const { succeeded } = useOutcome("/api/v1/backfills", "/api/v1/runs");
  const cancel = api.useMutation("post", "/api/v1/backfills/{id}/cancel", {
    onSuccess: () => {
      succeeded(`The backfill of ${backfill.workflow} was cancelled.`);
      setAsking(false);
    },
  });
  return (
    <>
      <Button look="danger" aria-label={`Cancel the backfill of ${backfill.workflow}`} onClick={() => setAsking(true)}>
        Cancel…
      </Button>
      {isAsking && (
        <ConfirmDialog
          title={`Cancel the backfill of ${backfill.workflow}`}
          action="Cancel the backfill"
          onConfirm={() => cancel.mutate({ params: { path: { id: backfill.id } } })}
          onClose={() => setAsking(false)}
          isBusy={cancel.isPending}
          error={cancel.error}
        >
          Its active runs are cancelled, and none of the slots that wait gets a run. Runs that have ended are kept.
        </ConfirmDialog>
      )}
    </>
  );
}
