import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useMayRunInstance } from "@/app/useMe";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Meter } from "@/design/Meter/Meter";
import { NamedRecords, type RecordAction } from "@/design/RecordsPage/NamedRecords";
import type { Column } from "@/design/Table/Table";
import { DeletePool } from "./DeletePool";
import { PoolForm } from "./PoolForm";

type Pool = Schema<"Pool">;

/** Named limits of slots over all nodes: how much of each is used, and its size. */
export function PoolsPage() {
  return (
    <NamedRecords
      title="Pools"
      noun="pool"
      query={api.useQuery("get", "/api/v1/pools", { params: { query: { limit: 500 } } })}
      columns={COLUMNS}
      empty={<NoPools />}
      mayChange={useMayRunInstance()}
      newForm={(close) => <PoolForm onClose={close} />}
      actions={ACTIONS}
    />
  );
}

const COLUMNS: Column<Pool>[] = [
  { header: "Name", cell: ({ name }) => <code>{name}</code> },
  {
    header: "Used slots",
    cell: ({ name, used, slots }) => <Meter used={used} size={slots} label={`Used slots of ${name}`} />,
  },
  { header: "Waiting tasks", align: "right", cell: ({ waiting }) => waiting },
];

const ACTIONS: RecordAction<Pool>[] = [
  { label: "Resize", dialog: (pool, close) => <PoolForm pool={pool} onClose={close} /> },
  { label: "Delete", dialog: ({ name }, close) => <DeletePool name={name} onClose={close} />, isDangerous: true },
];

function NoPools() {
  return (
    <EmptyState title="There is no pool." commands={[`tidemill --server ${location.origin} pool set warehouse 4`]}>
      A pool limits how many tasks run at a time, over all nodes. A task takes a slot with{" "}
      <code>@workflow.task(pool="warehouse")</code>.
    </EmptyState>
  );
}
