import type { Schema } from "@/api/types";
import { type GraphEdge, GraphView } from "@/design/GraphView/GraphView";
import { formatCount, plural } from "@/format/number";
import styles from "./RerunDialog.module.css";

/** What a retry or clear does: a sentence, and the graph with the tasks that rerun in colour. */
export function RerunPreview({ rerun, edges }: { rerun: Schema<"Rerun">; edges: GraphEdge[] }) {
  const known = new Set([...rerun.reruns, ...rerun.reused]);
  if (rerun.reruns.length === 0) return <p className={styles.hint}>Nothing in this run has failed.</p>;
  return (
    <>
      <p>
        <strong>{plural(rerun.reruns.length, "task reruns", "tasks rerun")}</strong>,{" "}
        <strong>{plural(rerun.reused.length, "result is reused", "results are reused")}</strong>.
        {rerun.missing_tasks.length > 0 && ` The newest version no longer has ${rerun.missing_tasks.join(", ")}.`}
      </p>
      {rerun.note !== null && <p className={styles.note}>{rerun.note}</p>}
      <div className={styles.graph}>
        <GraphView
          label="What reruns and what is reused"
          nodes={[
            ...rerun.reruns.map((task) => box(task, true, partOf(rerun, task))),
            ...rerun.reused.map((task) => box(task, false, "reused")),
          ]}
          edges={edges
            .filter(({ source, target }) => known.has(source) && known.has(target))
            .map((edge) => ({ ...edge, isActive: rerun.reruns.includes(edge.target) }))}
        />
      </div>
    </>
  );
}

function partOf(rerun: Schema<"Rerun">, task: string): string {
  const part = rerun.elements[task];
  return part === undefined ? "reruns" : `${formatCount(part.reruns)} of ${formatCount(part.total)} elements rerun`;
}

function box(task: string, isRerun: boolean, text: string) {
  return {
    id: task,
    height: 46,
    tone: isRerun ? ("blue" as const) : ("green" as const),
    isFaint: !isRerun,
    content: (
      <>
        <strong>{task}</strong>
        <div>{text}</div>
      </>
    ),
  };
}
