import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "@/api/client";
import { messageOf } from "@/api/problem";
import type { RunFilter } from "@/api/useRuns";
import { useMayWrite } from "@/app/useMe";
import { Button } from "@/design/Button/Button";
import { ConfirmDialog } from "@/design/ConfirmDialog/ConfirmDialog";
import { useToast } from "@/design/Toasts/Toasts";
import { plural } from "@/format/number";

/** Dismisses all failures that the list shows, after asking. */
export function DismissMatching({ filter, total }: { filter: RunFilter; total: number }) {
  const [isAsking, setAsking] = useState(false);
  const queries = useQueryClient();
  const announce = useToast();
  const { mutateAsync } = api.useMutation("post", "/api/v1/runs/dismiss");
  if (!useMayWrite()) return null;
  const { workflow = null, from = null, to = null, q = "", cause = "" } = filter;
  const dismiss = async () => {
    try {
      const { number } = await mutateAsync({ body: { workflow, from, to, q, cause, tag: "", key: "" } });
      announce(`${plural(number, "failed run")} dismissed.`);
      void queries.invalidateQueries({ queryKey: ["get", "/api/v1/runs"] });
      void queries.invalidateQueries({ queryKey: ["get", "/api/v1/overview"] });
    } catch (error) {
      announce(messageOf(error), "error");
    }
    setAsking(false);
  };
  return (
    <>
      <Button onClick={() => setAsking(true)}>Dismiss all {total}…</Button>
      {isAsking && (
        <ConfirmDialog
          title={`Dismiss ${plural(total, "failed run")}?`}
          action="Dismiss"
          onConfirm={() => void dismiss()}
          onClose={() => setAsking(false)}
        >
          They stay failed, and can be retried. Home counts them no longer.
        </ConfirmDialog>
      )}
    </>
  );
}
