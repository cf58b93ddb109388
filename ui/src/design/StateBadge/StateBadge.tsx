import { Badge } from "../Badge/Badge";
import { stateLabel, toneOf } from "../tone";
import styles from "./StateBadge.module.css";

/** The state of a run, a task, a reactor or an accumulator: a dot in its colour, and the word. */
export function StateBadge({ state }: { state: string }) {
  return (
    <Badge tone={toneOf(state)}>
      <span className={styles.dot} data-running={state === "running" || undefined} aria-hidden="true" />
      {stateLabel(state)}
    </Badge>
  );
}
