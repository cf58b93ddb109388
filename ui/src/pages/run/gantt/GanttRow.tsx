import { Link } from "@tanstack/react-router";
import { api } from "@/api/client";
import { Icon } from "@/design/Icon/Icon";
import { StateBar } from "@/design/StateBar/StateBar";
import { StateMark } from "@/design/StateMark/StateMark";
import { stateLabel, toneOf } from "@/design/tone";
import { formatDuration } from "@/format/duration";
import type { Task } from "../useRunTasks";
import styles from "./Gantt.module.css";
import { positionOf, type Scale } from "./scale";
import { type Span, spansOf } from "./spans";

interface Props {
  run: string;
  task: Task;
  scale: Scale;
  /** When the task could have begun, if that is known. */
  ready: number | undefined;
  now: number;
  isOpen: boolean;
  onToggle: () => void;
}

/** A task or an element over time. */
export function GanttRow({ run, task, scale, ready, now, isOpen, onToggle }: Props) {
  const isMapped = task.elements !== null;
  const { data } = api.useQuery(
    "get",
    "/api/v1/runs/{run}/tasks/{task}/attempts",
    { params: { path: { run, task: task.task }, query: task.index === null ? {} : { index: task.index } } },
    { enabled: !isMapped && task.attempts > 1 },
  );
  const spans = spansOf(task, ready, data?.items ?? [], now);
  const { task: name, index } = task;
  return (
    <>
      <div className={styles.label} data-element={index !== null || undefined}>
        {isMapped ? (
          <button
            type="button"
            className={styles.toggle}
            aria-expanded={isOpen}
            aria-label={`Elements of ${name}`}
            onClick={onToggle}
          >
            <Icon name="chevron" size={12} />
          </button>
        ) : (
          <span className={styles.toggle} />
        )}
        <StateMark state={task.state} />
        <Link
          to="."
          search={(search: object) => ({
            ...search,
            task: name,
            index: index ?? undefined,
            attempt: undefined,
            view: undefined,
          })}
          replace
          className={styles.name}
        >
          {index === null ? name : `[${index}]`}
        </Link>
      </div>
      <div className={styles.track}>
        {spans.map((span) => (
          <Bar key={`${span.kind}${span.from}`} span={span} scale={scale} task={task} />
        ))}
      </div>
    </>
  );
}

function Bar({ span, scale, task }: { span: Span; scale: Scale; task: Task }) {
  const left = positionOf(scale, span.from);
  const width = positionOf(scale, span.to) - left;
  const took = formatDuration((span.to - span.from) / 1000);
  const what = span.kind === "waiting" ? "waited" : `attempt ${span.attempt}, ${stateLabel(span.state)},`;
  const geometry = { left: `${left * 100}%`, width: `${width * 100}%` };
  if (task.elements !== null && span.kind === "attempt") {
    return (
      <span className={styles.mapped} style={geometry}>
        <StateBar counts={task.elements} label={`Elements of ${task.task}`} />
      </span>
    );
  }
  return (
    <span
      className={styles.bar}
      data-kind={span.kind}
      data-tone={toneOf(span.state)}
      data-running={(span.state === "running" && span.kind === "attempt") || undefined}
      role="img"
      aria-label={`${what} ${took}`}
      title={`${what} ${took}`}
      style={geometry}
    />
  );
}
