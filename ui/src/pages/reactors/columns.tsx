/** The columns of the list of reactors. */

import { Link } from "@tanstack/react-router";
import type { Schema } from "@/api/types";
import { Badge } from "@/design/Badge/Badge";
import { FiringSparkline } from "@/design/FiringSparkline/FiringSparkline";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import type { Column } from "@/design/Table/Table";
import { formatDuration } from "@/format/duration";
import { formatCompact, formatCount, formatRate } from "@/format/number";
import { useFirings } from "@/live/LiveProvider";
import styles from "./ReactorsPage.module.css";

export interface Row {
  state: Schema<"ReactorState">;
}

export const COLUMNS: Column<Row>[] = [
  {
    header: "Reactor",
    cell: ({ state: { name } }) => (
      <Link to="/reactors/$name" params={{ name }}>
        {name}
      </Link>
    ),
  },
  { header: "Health", width: "150px", cell: ({ state }) => <Health state={state} /> },
  { header: "Rate", align: "right", width: "80px", cell: ({ state }) => <Rate name={state.name} /> },
  {
    header: "Last minute",
    width: "140px",
    isSecondary: true,
    cell: ({ state }) => (
      <div className={styles.course}>
        <FiringSparkline name={state.name} />
      </div>
    ),
  },
  { header: "Firings", align: "right", width: "100px", cell: ({ state }) => <Fires state={state} /> },
  {
    header: "Failures",
    align: "right",
    width: "80px",
    cell: ({ state }) => <Count value={state.failures} tone="red" />,
  },
  { header: "p50", align: "right", width: "76px", isSecondary: true, cell: ({ state }) => latency(state, state.p50) },
  { header: "p99", align: "right", width: "76px", isSecondary: true, cell: ({ state }) => latency(state, state.p99) },
  { header: "Buffered", align: "right", width: "84px", isSecondary: true, cell: ({ state }) => state.buffered },
  { header: "Upstream", align: "right", width: "84px", isSecondary: true, cell: ({ state }) => upstreamLag(state) },
  {
    header: "Dead letters",
    align: "right",
    width: "100px",
    isSecondary: true,
    cell: ({ state }) => <Count value={state.dead_letters ?? 0} tone="amber" />,
  },
  { header: "Sources", width: "110px", isSecondary: true, cell: ({ state }) => sources(state) },
  { header: "Graphs", isSecondary: true, cell: ({ state }) => state.subscribers.join(", ") || "none" },
];

type State = Row["state"];

function Rate({ name }: { name: string }) {
  return formatRate(useFirings(name).rate);
}

function Fires({ state: { name, fires } }: { state: State }) {
  return formatCount(Math.max(fires, useFirings(name).total ?? 0));
}

function Health({ state }: { state: State }) {
  return (
    <span className={styles.health}>
      <StateBadge state={state.health} />
      {state.paused && <Badge tone="violet">paused</Badge>}
    </span>
  );
}

function Count({ value, tone }: { value: number; tone: "red" | "amber" }) {
  return value === 0 ? "0" : <Badge tone={tone}>{formatCompact(value)}</Badge>;
}

function latency({ fires }: State, seconds: number): string {
  return fires > 0 ? formatDuration(seconds) : "–";
}

/** Events that the sources still have, if any of them can say. */
function upstreamLag({ accumulators }: State): string {
  const known = Object.values(accumulators).flatMap(({ upstream_lag }) =>
    upstream_lag === null ? [] : [upstream_lag],
  );
  return known.length === 0 ? "–" : formatCompact(known.reduce((sum, lag) => sum + lag, 0));
}

function sources({ accumulators }: State): string {
  const all = Object.values(accumulators);
  const healthy = all.filter(({ health }) => health === "live" || health === "socket_only");
  return healthy.length === all.length ? `${all.length} live` : `${healthy.length} of ${all.length} live`;
}
