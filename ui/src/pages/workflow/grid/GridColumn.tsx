import { memo } from "react";
import { glyphOf } from "@/design/StateMark/glyph";
import { stateLabel, toneOf } from "@/design/tone";
import styles from "./Grid.module.css";
import { AXIS, CELL, durationOf, HEAD } from "./geometry";
import type { GridRun } from "./useGrid";

interface Props {
  id: string;
  run: GridRun;
  index: number;
  left: number;
  tasks: string[];
  /** The rows in view. */
  first: number;
  last: number;
  /** The duration that the highest bar stands for. */
  longest: number;
  /** The day that begins here. */
  date: string | undefined;
  /** The row that the pointer or the keyboard is at; -1 is the bar. */
  active: number | null;
}

const ROOM = HEAD - AXIS - 14;

/** One run: a bar as high as it took long, and a cell per task. It renders again only if the run has changed. */
export const GridColumn = memo(function GridColumn({
  id,
  run,
  index,
  left,
  tasks,
  first,
  last,
  longest,
  date,
  active,
}: Props) {
  const height = Math.max(3, Math.min(1, durationOf(run) / longest) * ROOM);
  const rows = Array.from({ length: Math.max(0, last - first + 1) }, (_, row) => first + row);
  return (
    // biome-ignore lint/a11y/useSemanticElements: a table cannot be virtualised in both directions
    // biome-ignore lint/a11y/useFocusableInteractive: the grid keeps the focus, and names the active cell
    <div className={styles.column} role="row" style={{ transform: `translateX(${left}px)` }}>
      {date !== undefined && (
        <span className={styles.date} aria-hidden="true">
          {date}
        </span>
      )}
      {/* biome-ignore lint/a11y/useSemanticElements: as above */}
      <span
        role="gridcell"
        id={`${id}--1`}
        aria-label={`Run ${run.id}, ${run.state}`}
        className={styles.head}
        tabIndex={-1}
        data-column={index}
        data-row={-1}
        data-active={active === -1 || undefined}
      >
        <span className={styles.bar} data-tone={toneOf(run.state)} style={{ height }} />
      </span>
      {rows.map((row) => {
        const task = tasks[row] ?? "";
        const state = run.cells[task]?.state;
        return (
          // biome-ignore lint/a11y/useSemanticElements: as above
          <span
            key={task}
            role="gridcell"
            id={`${id}-${row}`}
            tabIndex={-1}
            aria-label={`${task}, ${state ? stateLabel(state) : "not part of this run"}`}
            className={styles.cell}
            style={{ transform: `translateY(${HEAD + row * CELL}px)` }}
            data-column={index}
            data-row={row}
            data-active={active === row || undefined}
          >
            {state && (
              <span className={styles.mark} data-tone={toneOf(state)} data-state={state}>
                {glyphOf(state)}
              </span>
            )}
          </span>
        );
      })}
    </div>
  );
});
