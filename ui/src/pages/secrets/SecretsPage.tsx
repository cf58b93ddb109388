import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { type OpenDialog, useDialog } from "@/app/useDialog";
import { useMayAdminister } from "@/app/useMe";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { RecordsPage } from "@/design/RecordsPage/RecordsPage";
import { RowActions } from "@/design/RowActions/RowActions";
import type { Column } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { DeleteSecret } from "./DeleteSecret";
import { SecretForm } from "./SecretForm";

type Secret = Schema<"SecretStatus">;

/** Encrypted values that author code reads: set and delete, but never show. */
export function SecretsPage() {
  const dialog = useDialog();
  const mayChange = useMayAdminister();
  const secrets = api.useQuery("get", "/api/v1/secrets", { params: { query: { limit: 500 } } });
  const chosen = secrets.data?.items.find(({ name }) => name === dialog.subject);
  return (
    <RecordsPage
      title="Secrets"
      noun="secret"
      query={secrets}
      columns={mayChange ? [...COLUMNS, actions(dialog)] : COLUMNS}
      rowKey={({ name }) => name}
      searchText={({ name }) => name}
      empty={<NoSecrets />}
      onNew={mayChange ? () => dialog.open("new") : undefined}
    >
      {dialog.kind === "new" && <SecretForm onClose={dialog.close} />}
      {dialog.kind === "replace" && chosen && <SecretForm secret={chosen.name} onClose={dialog.close} />}
      {dialog.kind === "delete" && chosen && <DeleteSecret name={chosen.name} onClose={dialog.close} />}
    </RecordsPage>
  );
}

const COLUMNS: Column<Secret>[] = [
  { header: "Name", cell: ({ name }) => <code>{name}</code> },
  { header: "Version", align: "right", cell: ({ version }) => version },
  { header: "Master key", isSecondary: true, cell: ({ key_id }) => <code>{key_id}</code> },
  { header: "Changed", cell: ({ updated_at }) => <Time at={updated_at} isRelative /> },
  { header: "By", isSecondary: true, cell: ({ updated_by }) => updated_by },
];

function actions(dialog: OpenDialog): Column<Secret> {
  return {
    header: "Actions",
    align: "right",
    cell: ({ name }) => (
      <RowActions
        subject={name}
        actions={[
          { label: "Replace", act: () => dialog.open("replace", name) },
          { label: "Delete", act: () => dialog.open("delete", name), isDangerous: true },
        ]}
      />
    ),
  };
}

function NoSecrets() {
  return (
    <EmptyState title="No secret is set." commands={["tidemill secret set db_password"]}>
      A task reads a secret with <code>ctx.secret("db_password")</code>. The store keeps it encrypted, logs mask it, and
      no page shows it.
    </EmptyState>
  );
}
