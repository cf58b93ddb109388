import { useEffect, useState } from "react";
import { api } from "@/api/client";
import { Panel } from "@/design/Panel/Panel";
import { Plot, type Series } from "@/design/Plot/Plot";
import { formatDuration } from "@/format/duration";
import { formatCompact, formatRate } from "@/format/number";
import styles from "./MetricPlots.module.css";
import { levelOf, rateOf, type Sample, withSample } from "./samples";

/** Metrics are samples, not events. */
const INTERVAL = 2000;
const HEIGHT = 130;

interface Chart {
  title: string;
  format: (value: number) => string;
  series: (samples: Sample[]) => Series[];
}

const CHARTS: Chart[] = [
  {
    title: "Events and firings",
    format: formatRate,
    series: (samples) => [
      { label: "events", values: rateOf(samples, "accumulator_events_total"), color: "--accent" },
      { label: "firings", values: rateOf(samples, "reactor_fires_total"), color: "--blue" },
    ],
  },
  {
    title: "Duration of a firing",
    format: formatDuration,
    series: (samples) => [
      { label: "p50", values: levelOf(samples, "reactor_firing_seconds_p50"), color: "--accent" },
      { label: "p99", values: levelOf(samples, "reactor_firing_seconds_p99"), color: "--amber" },
    ],
  },
  {
    title: "Active runs and dispatch queue",
    format: formatCompact,
    series: (samples) => [
      { label: "active runs", values: levelOf(samples, "runs_active"), color: "--blue" },
      { label: "queue", values: levelOf(samples, "dispatch_queue_depth"), color: "--amber" },
    ],
  },
  {
    title: "Scheduler",
    format: formatDuration,
    series: (samples) => [
      { label: "tick", values: levelOf(samples, "scheduler_tick_seconds"), color: "--accent" },
      { label: "tick lag", values: levelOf(samples, "scheduler_tick_lag_seconds"), color: "--violet" },
    ],
  },
];

/** A few metrics of this server since the page was opened; Prometheus keeps them longer. */
export function MetricPlots() {
  const samples = useSamples();
  const times = samples.map(({ at }) => at);
  return (
    <div className={styles.charts}>
      {CHARTS.map(({ title, format, series }) => (
        <Panel key={title} title={title}>
          <Plot label={title} times={times} series={series(samples)} format={format} height={HEIGHT} />
        </Panel>
      ))}
    </div>
  );
}

function useSamples(): Sample[] {
  const { data } = api.useQuery("get", "/api/v1/system/metrics", {}, { refetchInterval: INTERVAL });
  const [samples, setSamples] = useState<Sample[]>([]);
  useEffect(() => {
    if (data === undefined) return;
    setSamples((known) => withSample(known, { at: Date.parse(data.at) / 1000, values: data.values }));
  }, [data]);
  return samples;
}
