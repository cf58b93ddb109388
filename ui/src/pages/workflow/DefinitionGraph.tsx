import type { Schema } from "@/api/types";
import { GraphView } from "@/design/GraphView/GraphView";
import { formatDuration } from "@/format/duration";
import { plural } from "@/format/number";
import styles from "./DefinitionGraph.module.css";

/** The tasks of a workflow as they are declared, with the options that differ from the defaults. */
export function DefinitionGraph({ workflow }: { workflow: Schema<"WorkflowDetails"> }) {
  return (
    <div className={styles.graph}>
      <GraphView
        label={`Tasks of ${workflow.name}`}
        nodes={workflow.tasks.map((task) => ({
          id: task.name,
          content: (
            <>
              <div className={styles.name}>{task.name}</div>
              <div className={styles.options} title={optionsOf(task).join(", ")}>
                {optionsOf(task).join(" · ") || task.rule.replaceAll("_", " ")}
              </div>
            </>
          ),
        }))}
        edges={workflow.edges.map(({ source, target, parameter, takes }) => ({
          source,
          target,
          label: takes?.join(" or "),
          isDashed: parameter === null,
        }))}
      />
    </div>
  );
}

function optionsOf(task: Schema<"TaskDetails">): string[] {
  return [
    task.each !== null && `each of ${task.each}`,
    task.graph !== null && `graph ${task.graph}`,
    task.tries > 1 && plural(task.tries, "try", "tries"),
    task.timeout !== null && `timeout ${formatDuration(task.timeout)}`,
    task.pool !== null && `pool ${task.pool}`,
    task.executor !== null && task.executor,
    task.rule !== "all_success" && task.rule.replaceAll("_", " "),
  ].filter((option) => option !== false);
}
