import { useQueryClient } from "@tanstack/react-query";
import { useToast } from "@/design/Toasts/Toasts";
import { api } from "./client";
import { messageOf } from "./problem";

/** Pauses and resumes workflows: while one is paused, none of its runs begins, and none of its tasks starts. */
export function usePauseWorkflow(): { toggle: (name: string, isPaused: boolean) => void; isBusy: boolean } {
  const queries = useQueryClient();
  const announce = useToast();
  const patch = api.useMutation("patch", "/api/v1/workflows/{name}", {
    onSuccess: ({ name, paused }) => {
      announce(paused ? `${name} is paused.` : `${name} is resumed.`);
      for (const path of ["/api/v1/workflows", "/api/v1/workflows/{name}", "/api/v1/schedules"])
        void queries.invalidateQueries({ queryKey: ["get", path] });
    },
    onError: (error) => announce(messageOf(error), "error"),
  });
  const toggle = (name: string, isPaused: boolean) =>
    patch.mutate({ params: { path: { name } }, body: { paused: !isPaused } });
  return { toggle, isBusy: patch.isPending };
}
