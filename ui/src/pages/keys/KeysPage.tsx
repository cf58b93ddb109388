import { useState } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { type OpenDialog, useDialog } from "@/app/useDialog";
import { useMayAdminister } from "@/app/useMe";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { RecordsPage } from "@/design/RecordsPage/RecordsPage";
import { CreatedKey } from "./CreatedKey";
import { keyColumns } from "./keyColumns";
import { NewKeyForm } from "./NewKeyForm";
import { RevokeKey } from "./RevokeKey";

/** API keys of programs: create, see when each was used last, revoke. */
export function KeysPage() {
  const dialog = useDialog();
  const mayAdmin = useMayAdminister();
  const keys = api.useQuery("get", "/api/v1/keys", { params: { query: { limit: 500 } } });
  return (
    <RecordsPage
      title="Keys"
      noun="key"
      query={keys}
      columns={keyColumns(dialog)}
      rowKey={({ id }) => id}
      searchText={({ id, label, role }) => `${id} ${label} ${role}`}
      empty={<NoKeys />}
      onNew={mayAdmin ? () => dialog.open("new") : undefined}
    >
      <KeyDialogs dialog={dialog} keys={keys.data?.items ?? []} />
    </RecordsPage>
  );
}

function KeyDialogs({ dialog, keys }: { dialog: OpenDialog; keys: Schema<"Key">[] }) {
  // Never in the address: this is the only time that anyone sees the key.
  const [created, setCreated] = useState<Schema<"CreatedKey"> | null>(null);
  if (created !== null) return <CreatedKey created={created} onClose={() => setCreated(null)} />;
  if (dialog.kind === "new") {
    return (
      <NewKeyForm
        onClose={dialog.close}
        onCreated={(key) => {
          dialog.close();
          setCreated(key);
        }}
      />
    );
  }
  const chosen = keys.find(({ id }) => id === dialog.subject);
  return dialog.kind === "revoke" && chosen ? <RevokeKey apiKey={chosen} onClose={dialog.close} /> : null;
}

function NoKeys() {
  return (
    <EmptyState title="There is no key." commands={[`tidemill --server ${location.origin} key create --role write`]}>
      A program proves with a key who it is: it sends <code>Authorization: Bearer KEY</code> with each request.
    </EmptyState>
  );
}
