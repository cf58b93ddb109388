import { formatDuration } from "@/format/duration";
import { formatCompact } from "@/format/number";
import { changedInputs, type Firing, outcomeOf, unseenBetween } from "../firings";
import { hasKey, keyText } from "../keys";
import { latencyTone } from "../latency";
import styles from "./FiringLog.module.css";

interface Props {
  firing: Firing;
  /** The one below it; of a keyed reactor, that of the same key. */
  before: Firing | undefined;
  offset: number;
  isSelected: boolean;
  onSelect: (id: string) => void;
}

/** One firing: when, how long, its key or how many the page has not seen before it, what changed, what came out. */
export function FiringRow({ firing, before, offset, isSelected, onSelect }: Props) {
  const { text, isError } = outcomeOf(firing);
  return (
    <button
      type="button"
      className={styles.row}
      style={{ transform: `translateY(${offset}px)` }}
      data-keyed={hasKey(firing) || undefined}
      aria-pressed={isSelected}
      onClick={() => onSelect(isSelected ? "" : firing.id)}
    >
      <span>{formatClock(firing.at)}</span>
      <span className={styles.duration} data-tone={latencyTone(firing.duration)}>
        {formatDuration(firing.duration)}
      </span>
      {hasKey(firing) ? (
        <span title={keyText(firing.key)}>{keyText(firing.key)}</span>
      ) : (
        <Unseen count={before === undefined ? 0 : unseenBetween(firing, before)} />
      )}
      <span className={styles.changed}>{changedInputs(firing, before).join(", ")}</span>
      <span className={styles.outcome} data-error={isError || undefined}>
        {marksOf(firing).map((mark) => (
          <span key={mark} className={styles.mark}>
            {mark}
          </span>
        ))}
        {text || "no output"}
      </span>
    </button>
  );
}

function Unseen({ count }: { count: number }) {
  return (
    <span className={styles.unseen} title={count > 0 ? `${count} firings before this one are not shown` : undefined}>
      {count > 0 ? `+${formatCompact(count)}` : ""}
    </span>
  );
}

export function marksOf({ ok, manual, degraded, attempt }: Firing): string[] {
  const marks = [!ok && "failed", manual && "manual", degraded && "degraded", attempt > 1 && `attempt ${attempt}`];
  return marks.filter((mark) => mark !== false);
}

/** With milliseconds: many firings share a second. */
export function formatClock(at: string): string {
  const date = new Date(at);
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0"));
  return `${clock.join(":")}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}
