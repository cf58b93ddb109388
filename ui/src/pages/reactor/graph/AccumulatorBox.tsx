import type { Schema } from "@/api/types";
import { stateLabel } from "@/design/tone";
import styles from "./Boxes.module.css";
import { Lag } from "./Lag";

/** An accumulator in the graph: whether a new value waits for the reactor, its health, and how far it is behind. */
export function AccumulatorBox({
  accumulator,
  isDirty,
}: {
  accumulator: Schema<"AccumulatorState">;
  isDirty: boolean;
}) {
  return (
    <>
      <div className={styles.line}>
        <span className={styles.name}>{accumulator.name}</span>
        <span className={styles.dirty} data-on={isDirty || undefined} title="Changed since the last firing">
          dirty
        </span>
      </div>
      <div className={styles.line}>
        <span className={styles.kind}>
          {stateLabel(accumulator.health)} · {accumulator.kind}
        </span>
        <Lag accumulator={accumulator} />
      </div>
    </>
  );
}
