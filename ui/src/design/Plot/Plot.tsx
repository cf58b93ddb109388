import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { useTheme } from "@/app/theme";
import styles from "./Plot.module.css";

export interface Series {
  label: string;
  values: (number | null)[];
  /** A token of colour: "--blue". */
  color: string;
}

interface Props {
  label: string;
  /** Seconds since the epoch, ascending. */
  times: number[];
  series: Series[];
  format: (value: number) => string;
  height?: number;
  isLogarithmic?: boolean;
}

/** Values over time, on a canvas: it stays smooth with thousands of points. */
export function Plot({ label, times, series, format, height = 180, isLogarithmic = false }: Props) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const { theme } = useTheme();
  const shape = `${theme} ${height} ${isLogarithmic} ${series.map((one) => one.label).join()}`;
  const data: uPlot.AlignedData = [times, ...series.map((one) => one.values)];

  // biome-ignore lint/correctness/useExhaustiveDependencies: only the shape makes a new plot, new values do not
  useEffect(() => {
    const element = holder.current;
    if (element === null) return;
    plot.current = new uPlot(options(element, { series, format, height, isLogarithmic }), data, element);
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => plot.current?.setData(data));

  return <div ref={holder} className={styles.plot} style={{ minHeight: height }} role="img" aria-label={label} />;
}

type Shape = Required<Pick<Props, "series" | "format" | "height" | "isLogarithmic">>;

function options(element: HTMLElement, { series, format, height, isLogarithmic }: Shape): uPlot.Options {
  const token = (name: string) => getComputedStyle(element).getPropertyValue(name).trim();
  const axis = {
    stroke: token("--text-3"),
    grid: { stroke: token("--line"), width: 1 },
    ticks: { show: false },
    font: `11px ${token("--font")}`,
  };
  return {
    width: element.clientWidth,
    height,
    legend: { live: true },
    cursor: { y: false },
    scales: { y: isLogarithmic ? { distr: 3 } : { range: (_plot, _low, high) => [0, high || 1] } },
    axes: [
      { ...axis, values: (_plot, ticks) => ticks.map((tick) => formatTick(tick, ticks)) },
      { ...axis, size: 58, values: (_plot, ticks) => ticks.map((tick) => (tick === null ? "" : format(tick))) },
    ],
    series: [
      { value: (_plot, time) => (time === null ? "" : new Date(time * 1000).toLocaleTimeString()) },
      ...series.map((one) => ({
        label: one.label,
        stroke: token(one.color),
        width: 1.5,
        points: { show: true, size: 3, filter: (plot: uPlot, index: number) => lonely(plot.data[index] ?? []) },
        value: (_plot: uPlot, value: number | null) => (value === null ? "–" : format(value)),
      })),
    ],
  };
}

/** The values without a neighbour: no line leads to them. */
function lonely(values: ArrayLike<number | null | undefined>): number[] {
  return Array.from(values).flatMap((value, index) =>
    value != null && values[index - 1] == null && values[index + 1] == null ? [index] : [],
  );
}

/** The clock of a tick, with seconds where ticks are closer than a minute. */
function formatTick(tick: number, ticks: number[]): string {
  const isClose = (ticks[1] ?? tick) - (ticks[0] ?? tick) < 60;
  return new Date(tick * 1000).toLocaleTimeString(undefined, {
    hour: "2-digit",
    minute: "2-digit",
    ...(isClose && { second: "2-digit" }),
    hour12: false,
  });
}
