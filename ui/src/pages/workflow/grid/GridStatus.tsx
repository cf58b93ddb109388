import { StateMark } from "@/design/StateMark/StateMark";
import { stateLabel } from "@/design/tone";
import { formatDuration } from "@/format/duration";
import { plural } from "@/format/number";
import { formatTime } from "@/format/time";
import styles from "./Grid.module.css";
import { durationOf, type Position } from "./geometry";
import type { GridCell, GridRun } from "./useGrid";

const LEGEND = ["success", "failed", "running", "queued", "skipped", "upstream_failed", "up_for_retry", "deferred"];

/** What the cell below the pointer or the keyboard says; the legend while there is none. */
export function GridStatus({ runs, tasks, active }: { runs: GridRun[]; tasks: string[]; active: Position | null }) {
  const run = active ? runs[active.column] : undefined;
  return (
    <div className={styles.status} role="status">
      {run && active ? (
        <>
          <strong>{formatTime(run.slot ?? run.created_at)}</strong>
          <span>
            {run.slot === null ? run.origin : `slot of ${run.origin}`} · run {stateLabel(run.state)} in{" "}
            {formatDuration(durationOf(run))}
          </span>
          {active.row >= 0 && <CellText task={tasks[active.row] ?? ""} cell={run.cells[tasks[active.row] ?? ""]} />}
        </>
      ) : (
        LEGEND.map((state) => (
          <span key={state} className={styles.legend}>
            <StateMark state={state} /> {stateLabel(state)}
          </span>
        ))
      )}
    </div>
  );
}

function CellText({ task, cell }: { task: string; cell: GridCell | undefined }) {
  if (cell === undefined) return <span>{task}: not part of this run</span>;
  const elements = cell.elements === null ? 0 : Object.values(cell.elements).reduce((sum, count) => sum + count, 0);
  const texts = [
    stateLabel(cell.state),
    cell.started_at !== null && formatDuration(durationOf(cell)),
    cell.attempts > 1 && plural(cell.attempts, "try", "tries"),
    elements > 0 && plural(elements, "element"),
  ].filter(Boolean);
  return (
    <span>
      <strong>{task}</strong>: {texts.join(", ")}
    </span>
  );
}
