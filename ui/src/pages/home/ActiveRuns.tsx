import { Link } from "@tanstack/react-router";
import type { Schema } from "@/api/types";
import { Elapsed } from "@/design/Elapsed/Elapsed";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Panel } from "@/design/Panel/Panel";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { type Column, Table } from "@/design/Table/Table";
import { plural } from "@/format/number";

type Run = Schema<"UnfinishedRun">;

interface Props {
  runs: Run[];
  active: Record<string, number>;
  className?: string | undefined;
}

/** The runs that have not ended, the oldest first: those that take long are the ones to look at. */
export function ActiveRuns({ runs, active, className }: Props) {
  const total = Object.values(active).reduce((sum, count) => sum + count, 0);
  return (
    <Panel
      title="Active runs"
      aside={<Link to="/runs">{total > runs.length ? `All ${plural(total, "active run")}` : "All runs"}</Link>}
      isFlush
      className={className}
    >
      {runs.length === 0 ? (
        <EmptyState title="No run is active." />
      ) : (
        <Table label="Runs that have not ended" columns={COLUMNS} rows={runs} rowKey={({ id }) => id} />
      )}
    </Panel>
  );
}

const COLUMNS: Column<Run>[] = [
  {
    header: "Run",
    cell: ({ id, workflow }) => (
      <Link to="/runs/$run" params={{ run: id }}>
        {workflow}
      </Link>
    ),
  },
  { header: "State", width: "110px", cell: ({ state }) => <StateBadge state={state} /> },
  { header: "Started by", isSecondary: true, cell: ({ origin }) => origin },
  {
    header: "For",
    align: "right",
    width: "96px",
    cell: ({ started_at, created_at }) => <Elapsed from={started_at ?? created_at} to={null} />,
  },
];
