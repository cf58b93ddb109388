import { useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import {
  type KeyboardEvent,
  type MouseEvent,
  memo,
  useCallback,
  useEffect,
  useId,
  useMemo,
  useRef,
  useState,
} from "react";
import styles from "./Grid.module.css";
import { GridColumn } from "./GridColumn";
import { GridStatus } from "./GridStatus";
import { CELL, datesOf, HEAD, longestOf, type Position, rowsAround, step } from "./geometry";
import type { GridRun } from "./useGrid";

interface Props {
  runs: GridRun[];
  tasks: string[];
  /** Called near the oldest run that was read. */
  onEnd: () => void;
}

/**
 * Runs as columns, newest first by their slots, and tasks as rows. Only what is in view exists, in both directions. Arrows move, Enter
 * and a click open the run at the task.
 */
export function Grid({ runs, tasks, onEnd }: Props) {
  const navigate = useNavigate();
  const id = useId();
  const scroll = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState<Position | null>(null);
  const getScrollElement = () => scroll.current;
  const columns = useVirtualizer({
    horizontal: true,
    count: runs.length,
    getScrollElement,
    estimateSize: () => CELL,
    overscan: 4,
  });
  const rows = useVirtualizer({
    count: tasks.length,
    getScrollElement,
    estimateSize: () => CELL,
    overscan: 2,
    scrollMargin: HEAD,
  });
  const shown = columns.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= runs.length - 10) onEnd();
  }, [last, runs.length, onEnd]);

  const open = useCallback(
    ({ column, row }: Position) => {
      const run = runs[column]?.id;
      if (run === undefined) return;
      const search = row < 0 ? {} : { task: tasks[row] };
      void navigate({ to: "/runs/$run", params: { run }, search: search as object });
    },
    [navigate, runs, tasks],
  );
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Enter" && active) open(active);
    const next = step(active, event.key, runs.length, tasks.length);
    if (next === null) return;
    event.preventDefault();
    setActive(next);
    columns.scrollToIndex(next.column);
    if (next.row >= 0) rows.scrollToIndex(next.row);
  };
  const onPointer = (event: MouseEvent) => {
    const at = positionOf(event);
    if (at && (at.column !== active?.column || at.row !== active.row)) setActive(at);
  };
  const onClick = (event: MouseEvent) => {
    const at = positionOf(event);
    if (at) open(at);
  };
  const visible = rows.getVirtualItems();
  const dates = useMemo(() => datesOf(runs), [runs]);
  const range = rowsAround(visible[0]?.index ?? 0, visible.at(-1)?.index ?? -1, tasks.length);
  return (
    <>
      {/* biome-ignore lint/a11y/useSemanticElements: a table cannot be virtualised in both directions */}
      <div
        ref={scroll}
        className={styles.scroll}
        role="grid"
        aria-label="Runs and tasks"
        aria-colcount={runs.length + 1}
        aria-rowcount={tasks.length + 1}
        aria-activedescendant={active ? `${id}-${active.column}-${active.row}` : undefined}
        tabIndex={0}
        onKeyDown={onKey}
        onMouseOver={onPointer}
        onFocus={() => active ?? setActive({ column: 0, row: 0 })}
        onClick={onClick}
      >
        <div className={styles.canvas} style={{ width: columns.getTotalSize(), height: rows.getTotalSize() + HEAD }}>
          <TaskNames tasks={tasks} active={active?.row ?? -1} />
          {shown.map(({ index, start }) => {
            const run = runs[index];
            return (
              run && (
                <GridColumn
                  key={run.id}
                  id={`${id}-${index}`}
                  run={run}
                  index={index}
                  left={start}
                  tasks={tasks}
                  first={range.first}
                  last={range.last}
                  longest={longestOf(runs)}
                  date={dates.get(index)}
                  active={active?.column === index ? active.row : null}
                />
              )
            );
          })}
        </div>
      </div>
      <GridStatus runs={runs} tasks={tasks} active={active} />
    </>
  );
}

/** The names stay at the left edge while the runs move. */
const TaskNames = memo(function TaskNames({ tasks, active }: { tasks: string[]; active: number }) {
  return (
    <div className={styles.names} aria-hidden="true">
      <div className={styles.corner} />
      {tasks.map((task, row) => (
        <div key={task} className={styles.name} data-active={row === active || undefined} title={task}>
          {task}
        </div>
      ))}
    </div>
  );
});

/** The cell below the pointer, which the elements say themselves. */
function positionOf(event: MouseEvent): Position | null {
  const cell = (event.target as HTMLElement).closest<HTMLElement>("[data-column]");
  if (cell === null) return null;
  return { column: Number(cell.dataset.column), row: Number(cell.dataset.row) };
}
