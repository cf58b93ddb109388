import { keepPreviousData } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Panel } from "@/design/Panel/Panel";
import { Plot, type Series } from "@/design/Plot/Plot";
import { RangeChips } from "@/design/Plot/RangeChips";
import { timesOf, useRange } from "@/design/Plot/range";
import { formatDuration } from "@/format/duration";
import { formatCompact, formatRate } from "@/format/number";
import styles from "./MetricPlots.module.css";

const HEIGHT = 130;

interface Line {
  label: string;
  /** A series of the server. */
  name: string;
  color: string;
  /** Whether it counts, and is shown per second. */
  isCounter?: boolean;
}

interface Chart {
  title: string;
  format: (value: number) => string;
  series: Line[];
}

const CHARTS: Chart[] = [
  {
    title: "Events and firings",
    format: formatRate,
    series: [
      { label: "events", name: "events", color: "--accent", isCounter: true },
      { label: "firings", name: "firings", color: "--blue", isCounter: true },
    ],
  },
  {
    title: "Duration of a firing",
    format: formatDuration,
    series: [
      { label: "p50", name: "p50", color: "--accent" },
      { label: "p99", name: "p99", color: "--amber" },
    ],
  },
  {
    title: "Active runs and dispatch queue",
    format: formatCompact,
    series: [
      { label: "active runs", name: "runs_active", color: "--blue" },
      { label: "queue", name: "dispatch_queue_depth", color: "--amber" },
    ],
  },
  {
    title: "Scheduler",
    format: formatDuration,
    series: [
      { label: "tick", name: "scheduler_tick_seconds", color: "--accent" },
      { label: "tick lag", name: "scheduler_tick_lag_seconds", color: "--violet" },
    ],
  },
];

/** A few metrics of this server, which keeps them for a day; Prometheus keeps them longer. */
export function MetricPlots() {
  const [range, setRange] = useRange();
  const { data } = api.useQuery(
    "get",
    "/api/v1/system/series",
    { params: { query: { seconds: range.seconds } } },
    { refetchInterval: range.refresh, placeholderData: keepPreviousData },
  );
  const length = Math.max(0, ...Object.values(data?.values ?? {}).map((values) => values.length));
  const times = data === undefined ? [] : timesOf(data, length);
  return (
    <>
      <div className={styles.range}>
        <RangeChips range={range} onChange={setRange} />
      </div>
      <div className={styles.charts}>
        {CHARTS.map(({ title, format, series }) => (
          <Panel key={title} title={title}>
            <Plot
              label={title}
              times={times}
              series={data === undefined ? [] : series.map((line) => drawn(line, data, length))}
              format={format}
              height={HEIGHT}
            />
          </Panel>
        ))}
      </div>
    </>
  );
}

function drawn({ label, name, color, isCounter }: Line, { values, step }: Schema<"Series">, length: number): Series {
  const found = values[name] ?? Array<null>(length).fill(null);
  return { label, color, values: isCounter ? found.map((value) => (value === null ? null : value / step)) : found };
}
