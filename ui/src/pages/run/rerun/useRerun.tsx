import type { ReactNode } from "react";
import { api } from "@/api/client";
import { useDialog } from "@/app/useDialog";
import { useMayWrite } from "@/app/useMe";
import type { RunData } from "../useRunData";
import { RerunDialog } from "./RerunDialog";

/** Opens the dialog that reruns a part of a run, in the address: `?dialog=clear:extract,load`; render `dialog`. */
export function useRerun({ id, run, tasks, edges }: RunData): {
  retry: () => void;
  clear: (tasks: string[]) => void;
  dialog: ReactNode;
} {
  const { kind, subject, open, close } = useDialog();
  const isOpen = useMayWrite() && (kind === "retry" || kind === "clear");
  const { data: workflow } = api.useQuery(
    "get",
    "/api/v1/workflows/{name}",
    { params: { path: { name: run?.workflow ?? "" } } },
    { enabled: run !== undefined && isOpen },
  );
  const clear = (tasks: string[]) => open("clear", tasks.join(","));
  const dialog = isOpen && (
    <RerunDialog
      run={id}
      from={kind === "retry" ? null : subject.split(",").filter((task) => task !== "")}
      onFrom={clear}
      tasks={tasks.map((task) => task.task)}
      edges={edges}
      hasNewerVersion={workflow !== undefined && workflow.version !== run?.version}
      onClose={close}
    />
  );
  return { retry: () => open("retry"), clear, dialog };
}
