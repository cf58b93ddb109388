import { type ReactNode, useState } from "react";
import { api } from "@/api/client";
import type { RunData } from "../useRunData";
import { RerunDialog } from "./RerunDialog";

/** Opens the dialog that reruns a part of a run; render `dialog` on the page. */
export function useRerun({ id, run, tasks, edges }: RunData): {
  retry: () => void;
  clear: (tasks: string[]) => void;
  dialog: ReactNode;
} {
  const [from, setFrom] = useState<string[] | null | undefined>(undefined);
  const { data: workflow } = api.useQuery(
    "get",
    "/api/v1/workflows/{name}",
    { params: { path: { name: run?.workflow ?? "" } } },
    { enabled: run !== undefined && from !== undefined },
  );
  const dialog = from !== undefined && (
    <RerunDialog
      run={id}
      from={from}
      tasks={tasks.map((task) => task.task)}
      edges={edges}
      hasNewerVersion={workflow !== undefined && workflow.version !== run?.version}
      onClose={() => setFrom(undefined)}
    />
  );
  return { retry: () => setFrom(null), clear: setFrom, dialog };
}
