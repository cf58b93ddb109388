import { StateBar } from "@/design/StateBar/StateBar";
import { formatCount } from "@/format/number";
import styles from "./Progress.module.css";

const ENDED = ["success", "failed", "cancelled"];

/** How far a backfill is: its runs by state, and how many have ended. */
export function Progress({ runs }: { runs: Record<string, number> }) {
  const total = Object.values(runs).reduce((sum, count) => sum + count, 0);
  const ended = ENDED.reduce((sum, state) => sum + (runs[state] ?? 0), 0);
  return (
    <span className={styles.progress}>
      <StateBar counts={runs} label="Runs" />
      <span className={styles.count}>
        {formatCount(ended)}/{formatCount(total)}
      </span>
    </span>
  );
}
