import { api } from "@/api/client";
import { INSTANCE_TENANT } from "@/api/tenant";
import type { Schema } from "@/api/types";
import { useMayRunInstance } from "@/app/useMe";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { NamedRecords, type RecordAction } from "@/design/RecordsPage/NamedRecords";
import type { Column } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { DeleteTenant } from "./DeleteTenant";
import { TenantForm } from "./TenantForm";

type Tenant = Schema<"Tenant">;

/** The owners of everything on this store. */
export function TenantsPage() {
  return (
    <NamedRecords
      title="Tenants"
      noun="tenant"
      query={api.useQuery("get", "/api/v1/tenants", { params: { query: { limit: 500 } } })}
      columns={COLUMNS}
      empty={<EmptyState title="There is no tenant that you may see." />}
      mayChange={useMayRunInstance()}
      newForm={(close) => <TenantForm onClose={close} />}
      actions={ACTIONS}
    />
  );
}

const COLUMNS: Column<Tenant>[] = [
  { header: "Name", cell: ({ name }) => <code>{name}</code> },
  { header: "Created", cell: ({ created_at }) => <Time at={created_at} /> },
  { header: "By", isSecondary: true, cell: ({ created_by }) => created_by },
];

const ACTIONS: RecordAction<Tenant>[] = [
  {
    label: "Delete",
    dialog: ({ name }, close) => <DeleteTenant name={name} onClose={close} />,
    isDangerous: true,
    // The tenant of the instance's admins cannot be deleted.
    isFor: ({ name }) => name !== INSTANCE_TENANT,
  },
];
