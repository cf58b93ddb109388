import type { Tone } from "@/design/tone";
import { formatDuration } from "@/format/duration";
import { formatCount, formatRate } from "@/format/number";
import { formatTime } from "@/format/time";
import { latencyTone } from "../latency";
import type { LiveReactor } from "../useLiveReactor";
import styles from "./Figures.module.css";

type Figure = [name: string, value: string, tone?: Tone | undefined];

/** The figures of a reactor at a glance, in cells that keep their size. */
export function Figures({ reactor, deadLetters }: { reactor: LiveReactor; deadLetters: number | undefined }) {
  return (
    <dl className={styles.figures} aria-label="Figures">
      {figuresOf(reactor, deadLetters).map(([name, value, tone]) => (
        <div key={name} className={styles.figure} data-tone={tone}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function figuresOf({ state, rates }: LiveReactor, deadLetters = 0): Figure[] {
  const dropped = Object.values(state.dropped).reduce((sum, count) => sum + count, 0);
  return [
    ["Rate", formatRate(rates.fires)],
    ["Firings", formatCount(state.fires)],
    ["Failures", formatCount(state.failures), state.failures > 0 ? "red" : undefined],
    ["p50", state.fires > 0 ? formatDuration(state.p50) : "–", latencyTone(state.p50)],
    ["p99", state.fires > 0 ? formatDuration(state.p99) : "–", latencyTone(state.p99)],
    ["Buffered", formatCount(state.buffered)],
    ["Dropped", formatCount(dropped), dropped > 0 ? "amber" : undefined],
    ["Dead letters", formatCount(deadLetters), deadLetters > 0 ? "amber" : undefined],
    // Firings before it, as on another node, are in none of these counters.
    ["Counted since", state.counted_since ? formatTime(state.counted_since) : "–"],
  ];
}
