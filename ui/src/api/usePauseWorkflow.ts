import { api } from "./client";
import { useOutcome } from "./useOutcome";

/** Pauses and resumes workflows: while one is paused, none of its runs begins, and none of its tasks starts. */
export function usePauseWorkflow(): { toggle: (name: string, isPaused: boolean) => void; isBusy: boolean } {
  const { succeeded, failed } = useOutcome("/api/v1/workflows", "/api/v1/schedules");
  const patch = api.useMutation("patch", "/api/v1/workflows/{name}", {
    onSuccess: ({ name, paused }) => succeeded(`${name} is ${paused ? "paused" : "resumed"}.`),
    onError: failed,
  });
  const toggle = (name: string, isPaused: boolean) =>
    patch.mutate({ params: { path: { name } }, body: { paused: !isPaused } });
  return { toggle, isBusy: patch.isPending };
}
