import { useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import { messageOf } from "@/api/problem";
import { Button } from "@/design/Button/Button";
import { useToast } from "@/design/Toasts/Toasts";

/** Dismisses the failure of a run: it stays failed, and Home counts it no longer. */
export function DismissRun({ run }: { run: string }) {
  const queries = useQueryClient();
  const announce = useToast();
  const dismiss = api.useMutation("post", "/api/v1/runs/{run}/dismiss", {
    onSuccess: () => {
      announce("The failure was dismissed: Home counts it no longer.");
      void queries.invalidateQueries({ queryKey: ["get", "/api/v1/runs/{run}"] });
      void queries.invalidateQueries({ queryKey: ["get", "/api/v1/overview"] });
    },
    onError: (error) => announce(messageOf(error), "error"),
  });
  return (
    <Button isBusy={dismiss.isPending} onClick={() => dismiss.mutate({ params: { path: { run } } })}>
      Dismiss
    </Button>
  );
}
