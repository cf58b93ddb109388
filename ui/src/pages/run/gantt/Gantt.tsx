import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef } from "react";
import { useSearchParam } from "@/app/useSearchParam";
import { ScrollRegion } from "@/design/ScrollRegion/ScrollRegion";
import { formatDuration } from "@/format/duration";
import { useNow } from "@/format/useNow";
import { hasEnded } from "../state";
import type { RunData } from "../useRunData";
import styles from "./Gantt.module.css";
import { GanttRow } from "./GanttRow";
import { positionOf, type Scale, scaleOf, ticksOf } from "./scale";
import { readyTimes } from "./spans";
import { useElements } from "./useElements";

const ROW = 28;

/** The run over time: one row per task, attempts as bars, waits lighter; a mapped task opens into its elements. */
export function Gantt({ data, selected }: { data: RunData; selected: string | null }) {
  const { run, tasks, edges } = data;
  const [open, setOpen] = useSearchParam("open", "");
  const elements = useElements(data.id, open);
  const now = useNow().getTime();
  const rows = useMemo(
    () => tasks.flatMap((task) => (task.task === open ? [task, ...elements.items] : [task])),
    [tasks, open, elements.items],
  );
  const scroll = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => ROW,
    overscan: 10,
  });
  const shown = virtual.getVirtualItems();
  const last = rows[shown.at(-1)?.index ?? 0];
  const { loadMore } = elements;
  useEffect(() => {
    if (last?.task === open || last === rows.at(-1)) loadMore();
  }, [last, open, rows, loadMore]);
  if (run === undefined) return null;
  const scale = scaleOf(run, now);
  const ready = readyTimes(tasks, edges, scale.start);
  return (
    <ScrollRegion ref={scroll} className={styles.gantt} label="Tasks over time">
      <Axis scale={scale} now={hasEnded(run.state) ? null : now} />
      <ul className={styles.rows} style={{ height: virtual.getTotalSize() }}>
        {shown.map(({ index, start }) => {
          const task = rows[index];
          if (task === undefined) return null;
          return (
            <li
              key={`${task.task}.${task.index}`}
              className={styles.row}
              data-selected={(task.index === null && task.task === selected) || undefined}
              style={{ transform: `translateY(${start}px)` }}
            >
              <GanttRow
                run={data.id}
                task={task}
                scale={scale}
                ready={task.index === null ? ready.get(task.task) : undefined}
                now={now}
                isOpen={task.task === open}
                onToggle={() => setOpen(task.task === open ? "" : task.task)}
              />
            </li>
          );
        })}
      </ul>
    </ScrollRegion>
  );
}

/** Times since the start of the run; the line is now. */
function Axis({ scale, now }: { scale: Scale; now: number | null }) {
  return (
    <div className={styles.axis} aria-hidden="true">
      <div className={styles.track}>
        {ticksOf(scale, 5).map((seconds) => (
          <span
            key={seconds}
            className={styles.tick}
            style={{ left: `${positionOf(scale, scale.start + seconds * 1000) * 100}%` }}
          >
            {formatDuration(seconds)}
          </span>
        ))}
        {now !== null && <span className={styles.now} style={{ left: `${positionOf(scale, now) * 100}%` }} />}
      </div>
    </div>
  );
}
