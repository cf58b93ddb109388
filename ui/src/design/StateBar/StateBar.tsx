import { formatCount } from "@/format/number";
import { stateLabel, toneOf } from "../tone";
import { inOrder } from "./order";
import styles from "./StateBar.module.css";

/** How many of a set are in each state: a stacked bar, ended ones first; the label has the figures. */
export function StateBar({ counts, label }: { counts: Record<string, number>; label: string }) {
  const shares = inOrder(counts);
  const text = shares.map(([state, count]) => `${formatCount(count)} ${stateLabel(state)}`).join(", ");
  return (
    <span className={styles.bar} role="img" aria-label={`${label}: ${text || "none"}`} title={text}>
      {shares.map(([state, count]) => (
        <span
          key={state}
          className={styles.share}
          data-tone={toneOf(state)}
          data-running={state === "running" || undefined}
          style={{ flexGrow: count }}
        />
      ))}
    </span>
  );
}
