import type { Schema } from "@/api/types";
import { stateLabel, toneOf } from "@/design/tone";
import styles from "./RecentRuns.module.css";

/** The last runs of a workflow, newest first as in its grid: a bar per run, failed ones full, others lower. */
export function RecentRuns({ runs }: { runs: Schema<"LastRun">[] }) {
  const states = runs.map(({ state }) => state);
  const failed = states.filter((state) => state === "failed").length;
  const label = `${states.length} newest runs, ${failed} failed; the newest is ${stateLabel(states[0] ?? "")}`;
  if (states.length === 0) return null;
  return (
    <span className={styles.runs} role="img" aria-label={label} title={label}>
      {states.map((state, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a bar is its position
        <span key={index} className={styles.run} data-tone={toneOf(state)} data-state={state} />
      ))}
    </span>
  );
}
