import { useEffect } from "react";
import { api } from "@/api/client";
import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Panel } from "@/design/Panel/Panel";
import { Plot } from "@/design/Plot/Plot";
import { formatDuration } from "@/format/duration";
import { formatCompact } from "@/format/number";
import { useNow } from "@/format/useNow";
import { courseOf } from "../latency";
import type { LiveReactor } from "../useLiveReactor";
import styles from "./LatencyTab.module.css";

const MINUTE = 60;

/** How long firings take, over the last minutes, and how many there were, over the last hour. */
export function LatencyTab({ reactor }: { reactor: LiveReactor }) {
  const { name } = reactor.state;
  const timeseries = api.useQuery("get", "/api/v1/reactors/{name}/timeseries", { params: { path: { name } } });
  const course = courseOf(reactor.latencies);
  const minute = Math.floor(useNow().getTime() / 1000 / MINUTE);
  const { refetch } = timeseries;
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new minute makes the counts outdated
  useEffect(() => void refetch(), [minute, refetch]);
  return (
    <div className={styles.plots}>
      <Panel title="Duration of firings" aside="since this page was opened, 15 minutes at most">
        {course.times.length > 0 ? (
          <Plot
            label="p50 and p99 of the duration of firings"
            times={course.times}
            series={[
              { label: "p50", values: course.p50, color: "--blue" },
              { label: "p99", values: course.p99, color: "--amber" },
            ]}
            format={formatDuration}
            height={280}
            isLogarithmic
          />
        ) : (
          <EmptyState title="This reactor has not fired." />
        )}
      </Panel>
      <Panel title="Firings per minute" aside="the last hour">
        <Answer query={timeseries}>{({ per_minute }) => <PerMinute counts={per_minute} />}</Answer>
      </Panel>
    </div>
  );
}

function PerMinute({ counts }: { counts: number[] }) {
  const now = Math.floor(Date.now() / 1000 / MINUTE) * MINUTE;
  const times = counts.map((_, index) => now - (counts.length - 1 - index) * MINUTE);
  return (
    <Plot
      label="Firings per minute"
      times={times}
      series={[{ label: "firings", values: counts, color: "--accent" }]}
      format={formatCompact}
      height={200}
    />
  );
}
