import type { Schema } from "@/api/types";
import { formatElapsed } from "@/format/duration";
import { secondsBetween } from "@/format/time";
import { useNow } from "@/format/useNow";
import styles from "./Boxes.module.css";

/** How long an accumulator has been without an event. */
export function Lag({ accumulator }: { accumulator: Schema<"AccumulatorState"> }) {
  const now = useNow();
  const { last_event_at: last } = accumulator;
  return (
    <>
      <span className={styles.kind}>last event</span>
      <span className={styles.figure}>
        {last === null ? "none" : `${formatElapsed(secondsBetween(last, null, now))} ago`}
      </span>
    </>
  );
}
