import type { Schema } from "@/api/types";
import type { OpenDialog } from "@/app/useDialog";
import { Badge } from "@/design/Badge/Badge";
import { RowActions } from "@/design/RowActions/RowActions";
import type { Column } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import type { Tone } from "@/design/tone";

type Key = Schema<"Key">;
type KeyState = "active" | "expired" | "revoked";

const TONES: Record<KeyState, Tone> = { active: "green", expired: "grey", revoked: "grey" };

export function keyColumns(dialog: OpenDialog): Column<Key>[] {
  return [
    { header: "Label", cell: ({ label }) => label || <span aria-hidden="true">–</span> },
    { header: "Key", cell: ({ id }) => <code>{id}…</code> },
    { header: "Role", cell: ({ role }) => role },
    { header: "State", cell: (key) => <Badge tone={TONES[stateOf(key)]}>{stateOf(key)}</Badge> },
    { header: "Reaches", isSecondary: true, cell: ({ only }) => (only === null ? "everything" : only.join(", ")) },
    { header: "Expires", isSecondary: true, cell: ({ expires_at }) => <TimeOr at={expires_at} otherwise="never" /> },
    { header: "Last used", cell: ({ last_used_at }) => <TimeOr at={last_used_at} otherwise="never" /> },
    { header: "Created by", isSecondary: true, cell: ({ created_by }) => created_by },
    {
      header: "Actions",
      align: "right",
      cell: (key) =>
        stateOf(key) === "active" && (
          <RowActions
            subject={key.label || key.id}
            actions={[{ label: "Revoke", act: () => dialog.open("revoke", key.id), isDangerous: true }]}
          />
        ),
    },
  ];
}

function stateOf({ revoked_at, expires_at }: Key): KeyState {
  if (revoked_at !== null) return "revoked";
  return expires_at !== null && new Date(expires_at) < new Date() ? "expired" : "active";
}

function TimeOr({ at, otherwise }: { at: string | null; otherwise: string }) {
  return at === null ? otherwise : <Time at={at} isRelative />;
}
