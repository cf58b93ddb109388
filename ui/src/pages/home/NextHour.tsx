import { Link } from "@tanstack/react-router";
import type { Schema } from "@/api/types";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Panel } from "@/design/Panel/Panel";
import { formatElapsed } from "@/format/duration";
import { plural } from "@/format/number";
import { formatTime, secondsBetween } from "@/format/time";
import { useNow } from "@/format/useNow";
import { type Lane, lanesOf } from "./lanes";
import styles from "./NextHour.module.css";

const QUARTERS = [0, 15, 30, 45, 60];
const MINUTE = 60_000;

/** The slots of the next hour: a lane per workflow, which moves towards now. */
export function NextHour({ upcoming, className }: { upcoming: Schema<"ComingSlots">; className?: string | undefined }) {
  const now = useNow();
  const lanes = lanesOf(upcoming.items, now);
  return (
    <Panel
      title="The next hour"
      aside={<Link to="/schedules">{upcoming.more ? "The nearest slots of many" : "All schedules"}</Link>}
      isFlush
      className={className}
    >
      {lanes.length === 0 ? (
        <EmptyState title="No slot is due in the next hour.">
          A workflow with a schedule, such as <code>tm.Every("10m")</code>, appears here.
        </EmptyState>
      ) : (
        <div className={styles.chart}>
          <Axis now={now} />
          <ul>
            {lanes.map((lane) => (
              <LaneRow key={lane.workflow} lane={lane} now={now} />
            ))}
          </ul>
        </div>
      )}
    </Panel>
  );
}

function Axis({ now }: { now: Date }) {
  return (
    <div className={styles.axis} aria-hidden="true">
      {QUARTERS.map((minutes) => (
        <span key={minutes} className={styles.hour} style={{ left: `${(minutes / 60) * 100}%` }}>
          {minutes === 0 ? "now" : formatTime(new Date(now.getTime() + minutes * MINUTE), now).slice(-8, -3)}
        </span>
      ))}
    </div>
  );
}

function LaneRow({ lane: { workflow, isPaused, isBand, marks }, now }: { lane: Lane; now: Date }) {
  const [first] = marks;
  const next = first === undefined ? "" : formatElapsed(secondsBetween(now.toISOString(), first.slot));
  return (
    <li className={styles.lane} data-paused={isPaused || undefined}>
      <Link to="/workflows/$name" params={{ name: workflow }} className={styles.name}>
        {workflow}
      </Link>
      <div className={styles.track}>
        {isBand && <span className={styles.band}>{plural(marks.length, "slot")}</span>}
        {!isBand &&
          marks.map(({ slot, at }) => (
            <span key={slot} className={styles.mark} style={{ left: `${at * 100}%` }} title={formatTime(slot)} />
          ))}
      </div>
      <span className={styles.next}>{isPaused ? "paused" : `in ${next}`}</span>
    </li>
  );
}
