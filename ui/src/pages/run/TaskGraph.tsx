import { Elapsed } from "@/design/Elapsed/Elapsed";
import { type GraphEdge, GraphView } from "@/design/GraphView/GraphView";
import { StateBar } from "@/design/StateBar/StateBar";
import { StateMark } from "@/design/StateMark/StateMark";
import { stateLabel, toneOf } from "@/design/tone";
import { formatCount } from "@/format/number";
import { isWaiting } from "./state";
import styles from "./TaskGraph.module.css";
import type { Why } from "./TaskTable";
import type { Task } from "./useRunTasks";

interface Props {
  tasks: Task[];
  edges: GraphEdge[];
  why: Why;
  selected: string | null;
  onSelect: (task: string) => void;
}

/** The tasks of a run as a graph, with their live states. */
export function TaskGraph({ tasks, edges, why, selected, onSelect }: Props) {
  const running = new Set(tasks.filter((task) => task.state === "running").map((task) => task.task));
  return (
    <GraphView
      label="Tasks of this run"
      nodes={tasks.map((task) => ({
        id: task.task,
        tone: toneOf(task.state),
        isSelected: task.task === selected,
        isFaint: task.state === "skipped" || task.state === "none",
        content: <TaskBox task={task} why={why[task.task]?.join("; ") ?? task.reason} />,
      }))}
      edges={edges.map((edge) => ({ ...edge, isActive: running.has(edge.target) }))}
      onSelect={onSelect}
    />
  );
}

function TaskBox({ task, why }: { task: Task; why: string }) {
  return (
    <div className={styles.box} title={why || undefined}>
      <div className={styles.name}>
        <span className={styles.text}>{task.task}</span>
        <StateMark state={task.state} />
      </div>
      {task.elements === null ? (
        <div className={styles.facts}>
          <span>{stateLabel(task.state)}</span>
          <span>
            {task.attempts > 1 && `${task.attempts} tries · `}
            {isWaiting(task.state) ? "" : <Elapsed from={task.started_at} to={task.ended_at} />}
          </span>
        </div>
      ) : (
        <div className={styles.facts}>
          <StateBar counts={task.elements} label={`Elements of ${task.task}`} />
          <span>{countOf(task.elements)}</span>
        </div>
      )}
    </div>
  );
}

function countOf(elements: Record<string, number>): string {
  const total = Object.values(elements).reduce((sum, count) => sum + count, 0);
  const done = elements.success ?? 0;
  return done === total ? formatCount(total) : `${formatCount(done)}/${formatCount(total)}`;
}
