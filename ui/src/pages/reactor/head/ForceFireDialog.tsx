import { useState } from "react";
import { FormDialog } from "@/design/FormDialog/FormDialog";
import type { Firing } from "../firings";
import { parseKey } from "../keys";
import { KeyField } from "./KeyField";
import { useReactorCommand } from "./useReactorCommand";

interface Props {
  name: string;
  onFired: (firing: Firing) => void;
  onClose: () => void;
}

/** Asks for the key of a keyed reactor to fire. */
export function ForceFireDialog({ name, onFired, onClose }: Props) {
  const [key, setKey] = useState("");
  const { give, isPending, error } = useReactorCommand(name, ({ firing }) => {
    if (firing) onFired(firing);
    onClose();
  });
  return (
    <FormDialog
      title={`Force fire ${name}`}
      action="Fire"
      onSubmit={() => give("force_fire", null, parseKey(key))}
      onClose={onClose}
      isBusy={isPending}
      error={error}
    >
      <KeyField value={key} onChange={setKey} />
    </FormDialog>
  );
}
