import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { type OpenDialog, useDialog } from "@/app/useDialog";
import { useMayRunInstance } from "@/app/useMe";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { RecordsPage } from "@/design/RecordsPage/RecordsPage";
import { RowActions } from "@/design/RowActions/RowActions";
import type { Column } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { DeleteTenant } from "./DeleteTenant";
import { TenantForm } from "./TenantForm";

type Tenant = Schema<"TenantView">;

/** The tenant of the instance's admins, which cannot be deleted. */
const INSTANCE = "public";

/** The owners of everything on this store. */
export function TenantsPage() {
  const dialog = useDialog();
  const mayChange = useMayRunInstance();
  const tenants = api.useQuery("get", "/api/v1/tenants", { params: { query: { limit: 500 } } });
  const chosen = tenants.data?.items.find(({ name }) => name === dialog.subject);
  return (
    <RecordsPage
      title="Tenants"
      noun="tenant"
      query={tenants}
      columns={mayChange ? [...COLUMNS, actions(dialog)] : COLUMNS}
      rowKey={({ name }) => name}
      searchText={({ name }) => name}
      empty={<EmptyState title="There is no tenant that you may see." />}
      onNew={mayChange ? () => dialog.open("new") : undefined}
    >
      {dialog.kind === "new" && <TenantForm onClose={dialog.close} />}
      {dialog.kind === "delete" && chosen && <DeleteTenant name={chosen.name} onClose={dialog.close} />}
    </RecordsPage>
  );
}

const COLUMNS: Column<Tenant>[] = [
  { header: "Name", cell: ({ name }) => <code>{name}</code> },
  { header: "Created", cell: ({ created_at }) => <Time at={created_at} /> },
  { header: "By", isSecondary: true, cell: ({ created_by }) => created_by },
];

function actions(dialog: OpenDialog): Column<Tenant> {
  return {
    header: "Actions",
    align: "right",
    cell: ({ name }) =>
      name !== INSTANCE && (
        <RowActions
          subject={name}
          actions={[{ label: "Delete", act: () => dialog.open("delete", name), isDangerous: true }]}
        />
      ),
  };
}
