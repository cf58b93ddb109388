import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { type OpenDialog, useDialog } from "@/app/useDialog";
import { Badge } from "@/design/Badge/Badge";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { RecordsPage } from "@/design/RecordsPage/RecordsPage";
import { RowActions } from "@/design/RowActions/RowActions";
import type { Column } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { AccountForm } from "./AccountForm";
import { DeleteAccount } from "./DeleteAccount";

type Account = Schema<"AccountView">;

/** People who sign in with a password. */
export function AccountsPage() {
  const dialog = useDialog();
  const accounts = api.useQuery("get", "/api/v1/accounts", { params: { query: { limit: 500 } } });
  const chosen = accounts.data?.items.find(({ name }) => name === dialog.subject);
  return (
    <RecordsPage
      title="Accounts"
      noun="account"
      query={accounts}
      columns={columns(dialog)}
      rowKey={({ name }) => name}
      searchText={({ name, role }) => `${name} ${role}`}
      empty={<NoAccounts />}
      onNew={() => dialog.open("new")}
    >
      {dialog.kind === "new" && <AccountForm onClose={dialog.close} />}
      {dialog.kind === "delete" && chosen && <DeleteAccount name={chosen.name} onClose={dialog.close} />}
    </RecordsPage>
  );
}

function columns(dialog: OpenDialog): Column<Account>[] {
  return [
    { header: "Name", cell: ({ name }) => name },
    { header: "Role", cell: ({ role }) => role },
    {
      header: "Last sign-in",
      cell: ({ last_login_at }) => (last_login_at === null ? "never" : <Time at={last_login_at} isRelative />),
    },
    { header: "State", cell: ({ locked_until }) => <AccountState lockedUntil={locked_until} /> },
    { header: "Created", isSecondary: true, cell: ({ created_at }) => <Time at={created_at} /> },
    { header: "By", isSecondary: true, cell: ({ created_by }) => created_by },
    {
      header: "Actions",
      align: "right",
      cell: ({ name }) => (
        <RowActions
          subject={name}
          actions={[{ label: "Delete", act: () => dialog.open("delete", name), isDangerous: true }]}
        />
      ),
    },
  ];
}

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
