import { keepPreviousData } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Panel } from "@/design/Panel/Panel";
import { Plot } from "@/design/Plot/Plot";
import { RangeChips } from "@/design/Plot/RangeChips";
import { timesOf, useRange } from "@/design/Plot/range";
import { formatDuration } from "@/format/duration";
import { formatCompact } from "@/format/number";
import styles from "./LatencyTab.module.css";

/** How long firings take, and how many there are, over the last minutes, the last hour, or the last day. */
export function LatencyTab({ name }: { name: string }) {
  const [range, setRange] = useRange();
  const series = api.useQuery(
    "get",
    "/api/v1/reactors/{name}/series",
    { params: { path: { name }, query: { seconds: range.seconds } } },
    { refetchInterval: range.refresh, placeholderData: keepPreviousData },
  );
  return (
    <div className={styles.plots}>
      <Panel title="Duration of firings" aside={<RangeChips range={range} onChange={setRange} />}>
        <Answer query={series}>{(data) => <Durations series={data} />}</Answer>
      </Panel>
      <Panel
        title={series.data?.step === 1 ? "Firings per second" : "Firings per minute"}
        aside={`the last ${range.label}`}
      >
        <Answer query={series}>{(data) => <Counts series={data} />}</Answer>
      </Panel>
    </div>
  );
}

type Series = Schema<"ReactorSeries">;

function Durations({ series }: { series: Series }) {
  const { p50, p99 } = series;
  if (!p99.some((value) => value !== null)) return <EmptyState title="This reactor has not fired in this time." />;
  return (
    <Plot
      label="p50 and p99 of the duration of firings"
      times={timesOf(series, p99.length)}
      series={[
        { label: "p50", values: p50, color: "--blue" },
        { label: "p99", values: p99, color: "--amber" },
      ]}
      format={formatDuration}
      height={280}
      isLogarithmic
    />
  );
}

function Counts({ series }: { series: Series }) {
  return (
    <Plot
      label={series.step === 1 ? "Firings per second" : "Firings per minute"}
      times={timesOf(series, series.firings.length)}
      series={[{ label: "firings", values: series.firings, color: "--accent" }]}
      format={formatCompact}
      height={200}
    />
  );
}
