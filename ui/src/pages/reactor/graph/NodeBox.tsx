import { formatDuration } from "@/format/duration";
import { formatRate } from "@/format/number";
import type { NodeActivity } from "./activity";
import styles from "./Boxes.module.css";
import type { NodeBox as Shown } from "./reactorGraph";

interface Props {
  box: Shown;
  activity: NodeActivity | undefined;
  rate: number;
}

/** A node in the graph: how often it runs, and the p99 of the firings in which it ran. */
export function NodeBox({ box, activity, rate }: Props) {
  const { name, feeds } = box.node;
  const p99 = activity?.p99 ?? null;
  return (
    <>
      <div className={styles.line}>
        <span className={styles.name}>{name}</span>
        {feeds !== null && <span className={styles.figure}>→ {feeds}</span>}
      </div>
      <div className={styles.line}>
        <span className={styles.figure}>{formatRate(rate)}</span>
        <span className={styles.figure}>{p99 === null ? "–" : formatDuration(p99)}</span>
      </div>
    </>
  );
}
