import type { Schema } from "@/api/types";
import { Button } from "@/design/Button/Button";
import { CommandLine } from "@/design/CommandLine/CommandLine";
import { Dialog } from "@/design/Dialog/Dialog";

/** A new key, for the only time that anyone sees it. */
export function CreatedKey({ created, onClose }: { created: Schema<"CreatedKey">; onClose: () => void }) {
  return (
    <Dialog
      title="Copy the key now"
      onClose={onClose}
      actions={
        <Button look="primary" onClick={onClose}>
          I have copied it
        </Button>
      }
    >
      <p>The store keeps only a hash of this key. Once you close this dialog, no page and no command shows it again.</p>
      <CommandLine command={created.key} />
      <p>Try it:</p>
      <CommandLine command={`curl -H "Authorization: Bearer ${created.key}" ${location.origin}/api/v1/me`} />
    </Dialog>
  );
}
