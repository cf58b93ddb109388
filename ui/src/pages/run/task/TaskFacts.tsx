import { api } from "@/api/client";
import { Elapsed } from "@/design/Elapsed/Elapsed";
import { Time } from "@/design/Time/Time";
import { plural } from "@/format/number";
import { hasEnded, isWaiting } from "../state";
import type { Task } from "../useRunTasks";
import { ErrorText } from "./ErrorText";
import styles from "./TaskFacts.module.css";

/** What a task does now, in a sentence, with its times; and its error if it has one. */
export function TaskFacts({ run, task }: { run: string; task: Task }) {
  return (
    <div className={styles.facts}>
      <Why run={run} task={task} />
      <p className={styles.line}>
        {task.started_at !== null && (
          <span>
            started <Time at={task.started_at} />
          </span>
        )}
        {task.started_at !== null && !isWaiting(task.state) && (
          <span>
            {hasEnded(task.state) ? "took " : "running for "}
            <Elapsed from={task.started_at} to={task.ended_at} />
          </span>
        )}
        {task.attempts > 1 && <span>{plural(task.attempts, "try", "tries")}</span>}
        <span>executor {task.executor}</span>
        {task.worker !== null && <span>on {task.worker}</span>}
        {task.pool !== null && <span>pool {task.pool}</span>}
        {task.queue !== "default" && <span>queue {task.queue}</span>}
        {task.priority !== 0 && <span>priority {task.priority}</span>}
      </p>
      {task.error !== null && <ErrorText error={task.error} />}
    </div>
  );
}

/** Why the task waits, or was not run: asked again with every change of the run. */
function Why({ run, task }: { run: string; task: Task }) {
  const isAsked = isWaiting(task.state) || ["skipped", "upstream_failed", "cancelled"].includes(task.state);
  const { data } = api.useQuery(
    "get",
    "/api/v1/runs/{run}/tasks/{task}/why",
    { params: { path: { run, task: task.task }, query: task.index === null ? {} : { index: task.index } } },
    { enabled: isAsked },
  );
  if (!isAsked || data === undefined) return null;
  return (
    <ul className={styles.why}>
      {data.reasons.map((reason) => (
        <li key={reason}>{sentence(reason)}</li>
      ))}
    </ul>
  );
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}
