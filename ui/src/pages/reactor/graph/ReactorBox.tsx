import { stateLabel } from "@/design/tone";
import { formatDuration } from "@/format/duration";
import { formatCount, formatRate } from "@/format/number";
import type { LiveReactor } from "../useLiveReactor";
import styles from "./Boxes.module.css";

/** The reactor in the graph: health, firings, latency, queue. */
export function ReactorBox({ reactor }: { reactor: LiveReactor }) {
  const { state, rates } = reactor;
  const figures: [string, string][] = [
    [state.paused ? "paused" : stateLabel(state.health), formatRate(rates.fires)],
    ["p99", state.fires > 0 ? formatDuration(state.p99) : "–"],
    ["buffered", formatCount(state.buffered)],
  ];
  return (
    <>
      <div className={styles.line}>
        <span className={styles.name}>{state.name}</span>
      </div>
      {figures.map(([name, value]) => (
        <div key={name} className={styles.line}>
          <span className={styles.kind}>{name}</span>
          <span className={styles.figure}>{value}</span>
        </div>
      ))}
    </>
  );
}
