import type { Schema } from "@/api/types";
import { Panel } from "@/design/Panel/Panel";
import { formatCount } from "@/format/number";
import styles from "./RunsOfDay.module.css";

type Hour = Schema<"EndedHour">;
type State = "success" | "failed" | "cancelled";

const STATES: State[] = ["success", "failed", "cancelled"];
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });

/** The runs that ended in each of the last 24 hours, stacked by how they ended. */
export function RunsOfDay({ hours, className }: { hours: Hour[]; className?: string | undefined }) {
  const highest = Math.max(1, ...hours.map(total));
  return (
    <Panel title="Last 24 hours" aside={<Legend hours={hours} />} className={className}>
      <div className={styles.chart}>
        <div className={styles.bars}>
          {hours.map((hour) => (
            <Bar key={hour.start} hour={hour} highest={highest} />
          ))}
        </div>
        <div className={styles.axis} aria-hidden="true">
          {hours
            .filter((_, index) => index % 6 === 0)
            .map(({ start }) => (
              <span key={start}>{CLOCK.format(new Date(start))}</span>
            ))}
          <span>now</span>
        </div>
      </div>
    </Panel>
  );
}

function Bar({ hour, highest }: { hour: Hour; highest: number }) {
  const text = STATES.map((state) => `${hour[state] ?? 0} ${state}`).join(", ");
  return (
    <div className={styles.bar} role="img" aria-label={`${CLOCK.format(new Date(hour.start))}: ${text}`} title={text}>
      {STATES.toReversed().map((state) => (
        <span
          key={state}
          className={styles.part}
          data-state={state}
          style={{ height: `${((hour[state] ?? 0) / highest) * 100}%` }}
        />
      ))}
    </div>
  );
}

function Legend({ hours }: { hours: Hour[] }) {
  return STATES.map((state) => (
    <span key={state} className={styles.legend}>
      <span className={styles.swatch} data-state={state} aria-hidden="true" />
      {formatCount(hours.reduce((sum, hour) => sum + (hour[state] ?? 0), 0))} {state}
    </span>
  ));
}

function total({ success = 0, failed = 0, cancelled = 0 }: Hour): number {
  return success + failed + cancelled;
}
