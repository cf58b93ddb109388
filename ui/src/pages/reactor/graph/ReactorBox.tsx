import { stateLabel } from "@/design/tone";
import { formatDuration } from "@/format/duration";
import { formatCount, formatRate } from "@/format/number";
import { recentPercentiles } from "../latency";
import type { LiveReactor } from "../useLiveReactor";
import styles from "./Boxes.module.css";

/** The reactor in the graph: health, firings, latency, queue. */
export function ReactorBox({ reactor }: { reactor: LiveReactor }) {
  const { state, rates, latencies } = reactor;
  const p99 = recentPercentiles(latencies)?.p99;
  const figures: [string, string][] = [
    [state.paused ? "paused" : stateLabel(state.health), formatRate(rates.fires)],
    ["p99", p99 === undefined ? "–" : formatDuration(p99)],
    ["queue", formatCount(state.queued)],
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
