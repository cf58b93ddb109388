import type { Schema } from "@/api/types";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { type Column, Table } from "@/design/Table/Table";
import { formatCount } from "@/format/number";

type Partition = Schema<"PartitionState">;

const COLUMNS: Column<Partition>[] = [
  { header: "Partition", width: "84px", align: "right", cell: ({ number }) => number },
  { header: "Owner", cell: ({ owner }) => owner ?? "none" },
  { header: "Health", width: "110px", cell: ({ health }) => <StateBadge state={health} /> },
  { header: "Keys", width: "96px", align: "right", cell: ({ keys }) => countOf(keys?.total) },
  { header: "In memory", width: "96px", align: "right", cell: ({ keys }) => countOf(keys?.active) },
  { header: "Stored", width: "96px", align: "right", isSecondary: true, cell: ({ keys }) => countOf(keys?.stored) },
  { header: "Firings", width: "96px", align: "right", cell: ({ fires }) => formatCount(fires) },
  { header: "Queued", width: "96px", align: "right", isSecondary: true, cell: ({ queued }) => formatCount(queued) },
];

function countOf(count: number | undefined): string {
  return count === undefined ? "–" : formatCount(count);
}

/** The partitions of a keyed reactor: which node runs each of them, and how many keys it has. */
export function PartitionTable({ partitions }: { partitions: Partition[] }) {
  return <Table label="Partitions" columns={COLUMNS} rows={partitions} rowKey={({ number }) => String(number)} />;
}
