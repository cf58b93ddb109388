import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useMayAdminister } from "@/app/useMe";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { NamedRecords, type RecordAction } from "@/design/RecordsPage/NamedRecords";
import type { Column } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { DeleteSecret } from "./DeleteSecret";
import { SecretForm } from "./SecretForm";

type Secret = Schema<"Secret">;

/** Encrypted values that author code reads: set and delete, but never show. */
export function SecretsPage() {
  return (
    <NamedRecords
      title="Secrets"
      noun="secret"
      query={api.useQuery("get", "/api/v1/secrets", { params: { query: { limit: 500 } } })}
      columns={COLUMNS}
      empty={<NoSecrets />}
      mayChange={useMayAdminister()}
      newForm={(close) => <SecretForm onClose={close} />}
      actions={ACTIONS}
    />
  );
}

const COLUMNS: Column<Secret>[] = [
  { header: "Name", cell: ({ name }) => <code>{name}</code> },
  { header: "Version", align: "right", cell: ({ version }) => version },
  { header: "Master key", isSecondary: true, cell: ({ key_id }) => <code>{key_id}</code> },
  { header: "Changed", cell: ({ updated_at }) => <Time at={updated_at} isRelative /> },
  { header: "By", isSecondary: true, cell: ({ updated_by }) => updated_by },
];

const ACTIONS: RecordAction<Secret>[] = [
  { label: "Replace", dialog: ({ name }, close) => <SecretForm secret={name} onClose={close} /> },
  { label: "Delete", dialog: ({ name }, close) => <DeleteSecret name={name} onClose={close} />, isDangerous: true },
];

function NoSecrets() {
  return (
    <EmptyState title="No secret is set." commands={["tidemill secret set db_password"]}>
      A task reads a secret with <code>ctx.secret("db_password")</code>. The store keeps it encrypted, logs mask it, and
      no page shows it.
    </EmptyState>
  );
}
