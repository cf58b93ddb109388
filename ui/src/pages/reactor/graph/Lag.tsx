import type { Schema } from "@/api/types";
import { formatElapsed } from "@/format/duration";
import { formatCompact } from "@/format/number";
import { secondsBetween } from "@/format/time";
import { useNow } from "@/format/useNow";
import styles from "./Boxes.module.css";

/** Own against upstream lag: how long ago the last event came, and how many more its source has. */
export function Lag({ accumulator }: { accumulator: Schema<"AccumulatorState"> }) {
  const now = useNow();
  const { last_event_at: last, upstream_lag: upstream } = accumulator;
  return (
    <span className={styles.figure}>
      <span title="Since the last event">
        {last === null ? "no event" : `${formatElapsed(secondsBetween(last, null, now))} ago`}
      </span>
      {upstream !== null && <span title="Events that wait at the source"> ↑{formatCompact(upstream)}</span>}
    </span>
  );
}
