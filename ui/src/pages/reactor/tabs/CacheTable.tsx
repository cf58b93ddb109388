import { Badge } from "@/design/Badge/Badge";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { type Column, Table } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import type { ReactorState } from "../useLiveReactor";
import styles from "./CacheTable.module.css";
import { CacheValue } from "./CacheValue";

interface Row {
  name: string;
  value: unknown;
  isDirty: boolean;
  health: string;
  lastEventAt: string | null;
}

const COLUMNS: Column<Row>[] = [
  { header: "Source", cell: ({ name }) => name, width: "130px" },
  { header: "Value", cell: ({ name, value }) => <CacheValue name={name} value={value} /> },
  {
    header: "Dirty",
    width: "84px",
    cell: ({ isDirty }) => (
      <span className={styles.dirty} data-on={isDirty || undefined}>
        <Badge tone="blue">dirty</Badge>
      </span>
    ),
  },
  { header: "Health", width: "110px", isSecondary: true, cell: ({ health }) => <StateBadge state={health} /> },
  {
    header: "Last event",
    width: "96px",
    align: "right",
    isSecondary: true,
    cell: ({ lastEventAt }) => (lastEventAt === null ? "none" : <Time at={lastEventAt} isRelative />),
  },
];

/** What the reactor will fire with: the last boundary of each source, and whether it is newer than the last firing. */
export function CacheTable({ state, isBrief = false }: { state: ReactorState; isBrief?: boolean }) {
  const rows = Object.values(state.accumulators).map((accumulator) => ({
    name: accumulator.name,
    value: state.cache[accumulator.name],
    isDirty: state.dirty[accumulator.name] ?? false,
    health: accumulator.health,
    lastEventAt: accumulator.last_event_at,
  }));
  const columns = isBrief ? COLUMNS.slice(0, 3) : COLUMNS;
  return (
    <div className={styles.cache}>
      <Table label="Values in the cache" columns={columns} rows={rows} rowKey={({ name }) => name} />
    </div>
  );
}
