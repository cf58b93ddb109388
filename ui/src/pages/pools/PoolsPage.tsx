import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { type OpenDialog, useDialog } from "@/app/useDialog";
import { useMayRunInstance } from "@/app/useMe";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Meter } from "@/design/Meter/Meter";
import { RecordsPage } from "@/design/RecordsPage/RecordsPage";
import { RowActions } from "@/design/RowActions/RowActions";
import type { Column } from "@/design/Table/Table";
import { DeletePool } from "./DeletePool";
import { PoolForm } from "./PoolForm";

type Pool = Schema<"PoolSummary">;

/** Named limits of slots over all nodes: how much of each is used, and its size. */
export function PoolsPage() {
  const dialog = useDialog();
  const mayChange = useMayRunInstance();
  const pools = api.useQuery("get", "/api/v1/pools", { params: { query: { limit: 500 } } });
  const chosen = pools.data?.items.find(({ name }) => name === dialog.subject);
  return (
    <RecordsPage
      title="Pools"
      noun="pool"
      query={pools}
      columns={mayChange ? [...COLUMNS, actions(dialog)] : COLUMNS}
      rowKey={({ name }) => name}
      searchText={({ name }) => name}
      empty={<NoPools />}
      onNew={mayChange ? () => dialog.open("new") : undefined}
    >
      {dialog.kind === "new" && <PoolForm onClose={dialog.close} />}
      {dialog.kind === "resize" && chosen && <PoolForm pool={chosen} onClose={dialog.close} />}
      {dialog.kind === "delete" && chosen && <DeletePool name={chosen.name} onClose={dialog.close} />}
    </RecordsPage>
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

function actions(dialog: OpenDialog): Column<Pool> {
  return {
    header: "Actions",
    align: "right",
    cell: ({ name }) => (
      <RowActions
        subject={name}
        actions={[
          { label: "Resize", act: () => dialog.open("resize", name) },
          { label: "Delete", act: () => dialog.open("delete", name), isDangerous: true },
        ]}
      />
    ),
  };
}

function NoPools() {
  return (
    <EmptyState title="There is no pool." commands={["tidemill pool set warehouse 4"]}>
      A pool limits how many tasks run at a time, over all nodes. A task takes a slot with{" "}
      <code>@workflow.task(pool="warehouse")</code>.
    </EmptyState>
  );
}
