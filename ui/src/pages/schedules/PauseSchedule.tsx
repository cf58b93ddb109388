import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { RowActions } from "@/design/RowActions/RowActions";

/** Pauses or resumes the workflow of a schedule: while it is paused, none of its runs begins. */
export function PauseSchedule({ workflow, isPaused }: { workflow: string; isPaused: boolean }) {
  const { succeeded, failed } = useOutcome("/api/v1/workflows", "/api/v1/schedules", "/api/v1/overview");
  const change = api.useMutation("patch", "/api/v1/workflows/{name}", {
    onSuccess: () => succeeded(`Workflow ${workflow} is ${isPaused ? "active again" : "paused"}.`),
    onError: failed,
  });
  return (
    <RowActions
      subject={workflow}
      actions={[
        {
          label: isPaused ? "Resume" : "Pause",
          act: () => change.mutate({ params: { path: { name: workflow } }, body: { paused: !isPaused } }),
          isBusy: change.isPending,
        },
      ]}
    />
  );
}
