import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useMayAdminister } from "@/app/useMe";
import { Badge } from "@/design/Badge/Badge";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { NamedRecords, type RecordAction } from "@/design/RecordsPage/NamedRecords";
import type { Column } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { AccountForm } from "./AccountForm";
import { DeleteAccount } from "./DeleteAccount";

type Account = Schema<"Account">;

/** People who sign in with a password. */
export function AccountsPage() {
  return (
    <NamedRecords
      title="Accounts"
      noun="account"
      query={api.useQuery("get", "/api/v1/accounts", { params: { query: { limit: 500 } } })}
      columns={COLUMNS}
      searchText={({ name, role }) => `${name} ${role}`}
      empty={<NoAccounts />}
      mayChange={useMayAdminister()}
      newForm={(close) => <AccountForm onClose={close} />}
      actions={ACTIONS}
    />
  );
}

const COLUMNS: Column<Account>[] = [
  { header: "Name", cell: ({ name }) => name },
  { header: "Role", cell: ({ role }) => role },
  {
    header: "Last sign-in",
    cell: ({ last_login_at }) => (last_login_at === null ? "never" : <Time at={last_login_at} isRelative />),
  },
  { header: "State", cell: ({ locked_until }) => <AccountState lockedUntil={locked_until} /> },
  { header: "Created", isSecondary: true, cell: ({ created_at }) => <Time at={created_at} /> },
  { header: "By", isSecondary: true, cell: ({ created_by }) => created_by },
];

const ACTIONS: RecordAction<Account>[] = [
  { label: "Delete", dialog: ({ name }, close) => <DeleteAccount name={name} onClose={close} />, isDangerous: true },
];

/** An account is locked for a while after several wrong passwords. */
function AccountState({ lockedUntil }: { lockedUntil: string | null }) {
  if (lockedUntil === null || new Date(lockedUntil) < new Date()) return <Badge tone="green">active</Badge>;
  return (
    <Badge tone="amber">
      locked, opens <Time at={lockedUntil} isRelative />
    </Badge>
  );
}

function NoAccounts() {
  return (
    <EmptyState title="There is no account.">
      A person signs in to these pages with an account. A program uses a key instead.
    </EmptyState>
  );
}
