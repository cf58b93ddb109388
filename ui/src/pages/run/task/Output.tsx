import { api } from "@/api/client";
import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { JsonView } from "@/design/JsonView/JsonView";
import { stateLabel } from "@/design/tone";
import type { Task } from "../useRunTasks";
import styles from "./TaskPanel.module.css";

/** What a task returned; only a task that has succeeded has an output. */
export function Output({ run, task, index }: { run: string; task: Task; index: number | null }) {
  if (task.state !== "success")
    return <EmptyState title={`This task has no output: it is ${stateLabel(task.state)}.`} />;
  return <Value run={run} task={task.task} index={index} />;
}

function Value({ run, task, index }: { run: string; task: string; index: number | null }) {
  const query = api.useQuery("get", "/api/v1/runs/{run}/tasks/{task}/output", {
    params: { path: { run, task }, query: index === null ? {} : { index } },
  });
  return (
    <Answer query={query}>
      {({ output }) => (
        <div className={styles.padded}>
          <JsonView value={output} label="Output" isFull />
        </div>
      )}
    </Answer>
  );
}
