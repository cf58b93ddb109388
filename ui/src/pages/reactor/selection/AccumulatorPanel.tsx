import { Link } from "@tanstack/react-router";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useMayWrite } from "@/app/useMe";
import { Answer } from "@/design/Answer/Answer";
import { Facts } from "@/design/Facts/Facts";
import { JsonView } from "@/design/JsonView/JsonView";
import { ScrollRegion } from "@/design/ScrollRegion/ScrollRegion";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { Time } from "@/design/Time/Time";
import { formatDuration } from "@/format/duration";
import { formatCount, formatRate, plural } from "@/format/number";
import type { LiveReactor } from "../useLiveReactor";
import { PushForm } from "./PushForm";
import { RestartAccumulator } from "./RestartAccumulator";
import styles from "./Selection.module.css";

/** One accumulator: health and why, counters, the value in the cache, a form for a test event. */
export function AccumulatorPanel({ reactor, name }: { reactor: LiveReactor; name: string }) {
  const details = api.useQuery("get", "/api/v1/accumulators/{name}", { params: { path: { name } } });
  const mayWrite = useMayWrite();
  const accumulator = reactor.state.accumulators[name];
  if (accumulator === undefined) return null;
  return (
    <ScrollRegion className={styles.selection} label={`About accumulator ${name}`}>
      {accumulator.reason !== null && <p className={styles.reason}>{accumulator.reason}</p>}
      <Facts facts={factsOf(accumulator, reactor.rates.emitted[name] ?? 0)} />
      {accumulator.dead_letters > 0 && (
        <Link
          to="."
          search={(search: Record<string, unknown>) => ({ ...search, tab: "dead-letters", select: undefined })}
        >
          Show its dead letters
        </Link>
      )}
      <div>
        <h3 className={styles.heading}>Value in the cache</h3>
        <JsonView value={reactor.state.cache[name] ?? null} label={`Value of ${name}`} />
      </div>
      {mayWrite && <RestartAccumulator name={name} />}
      <Answer query={details}>
        {({ event_schema }) => (
          <>
            {mayWrite && <PushForm accumulator={name} schema={event_schema ?? {}} />}
            <details>
              <summary className={styles.heading}>Schema of an event</summary>
              <JsonView value={event_schema} label={`Schema of an event of ${name}`} />
            </details>
          </>
        )}
      </Answer>
    </ScrollRegion>
  );
}

function factsOf(accumulator: Schema<"AccumulatorState">, rate: number): [string, React.ReactNode][] {
  const { health, kind, events, emitted, suppressed, dead_letters, restarts, last_event_at } = accumulator;
  const { buffered, upstream_lag, pushes, push_seconds } = accumulator;
  return [
    ["Health", <StateBadge key="health" state={health} />],
    ["Kind", kind],
    ["Rate", formatRate(rate)],
    ["Last event", last_event_at === null ? "none" : <Time key="last" at={last_event_at} isRelative />],
    ["Own backlog", plural(buffered, "event")],
    ["Upstream backlog", upstream_lag === null ? "its source cannot say" : plural(upstream_lag, "event")],
    ["Time of a push", pushes === 0 ? "–" : formatDuration(push_seconds / pushes)],
    ["Events", formatCount(events)],
    ["Emitted", formatCount(emitted)],
    ["Suppressed", formatCount(suppressed)],
    ["Dead letters", formatCount(dead_letters)],
    ["Restarts", formatCount(restarts)],
    ...countedSince(accumulator.counted_since),
  ];
}

/** Its counters began when its node loaded it: after a move they are smaller than what happened. */
function countedSince(time: string | null | undefined): [string, React.ReactNode][] {
  return time ? [["Counted since", <Time key="counted" at={time} />]] : [];
}
