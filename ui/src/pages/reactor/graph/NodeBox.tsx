import styles from "./Boxes.module.css";
import type { NodeBox as Shown } from "./reactorGraph";

interface Props {
  box: Shown;
  /** Rate and p99; null if there is no room for them. */
  figures: [rate: string, p99: string] | null;
}

/** A node in the graph: how often it runs, and the p99 of the firings in which it ran. */
export function NodeBox({ box, figures }: Props) {
  const { name, feeds } = box.node;
  return (
    <>
      <div className={styles.line}>
        <span className={styles.name}>{name}</span>
        {feeds !== null && <span className={styles.figure}>→ {feeds}</span>}
      </div>
      {figures && (
        <div className={styles.line}>
          <span className={styles.figure}>{figures[0]}</span>
          <span className={styles.figure}>{figures[1]}</span>
        </div>
      )}
    </>
  );
}
