import styles from "./Skeleton.module.css";

/** Grey lines while an answer is on its way; they appear late, so that fast answers do not flicker. */
export function Skeleton({ lines = 3 }: { lines?: number }) {
  return (
    <div className={styles.skeleton} role="status">
      <span className="visually-hidden">Loading</span>
      {Array.from({ length: lines }, (_, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines are all alike
        <div key={index} className={styles.line} />
      ))}
    </div>
  );
}
