import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { RowActions } from "@/design/RowActions/RowActions";

/** Pauses or resumes a trigger: while it is paused, it starts nothing. */
export function PauseTrigger({ name, isPaused }: { name: string; isPaused: boolean }) {
  const { succeeded, failed } = useOutcome("/api/v1/triggers", "/api/v1/workflows");
  const change = api.useMutation("patch", "/api/v1/triggers/{name}", {
    onSuccess: ({ paused }) => succeeded(`Trigger ${name} is ${paused ? "paused" : "active again"}.`),
    onError: failed,
  });
  return (
    <RowActions
      subject={name}
      actions={[
        {
          label: isPaused ? "Resume" : "Pause",
          act: () => change.mutate({ params: { path: { name } }, body: { paused: !isPaused } }),
          isBusy: change.isPending,
        },
      ]}
    />
  );
}
