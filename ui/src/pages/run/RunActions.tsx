import type { Schema } from "@/api/types";
import { useDialog } from "@/app/useDialog";
import { useMayWrite } from "@/app/useMe";
import { Button } from "@/design/Button/Button";
import { Icon } from "@/design/Icon/Icon";
import { CancelDialog } from "./head/CancelDialog";
import { DismissRun } from "./head/DismissRun";
import { hasEnded } from "./state";

interface Props {
  run: Schema<"RunDetails">;
  onRetry: () => void;
  onClear: () => void;
}

/** What can be done with a run in its state. */
export function RunActions({ run, onRetry, onClear }: Props) {
  const dialog = useDialog();
  if (!useMayWrite()) return null;
  const isActive = !hasEnded(run.state);
  return (
    <>
      <Button onClick={onClear}>Clear tasks…</Button>
      {isActive && (
        <Button look="danger" onClick={() => dialog.open("cancel")}>
          Cancel…
        </Button>
      )}
      {run.state === "failed" && isUndismissed(run) && <DismissRun run={run.id} />}
      {(run.state === "failed" || run.state === "cancelled") && (
        <Button look="primary" onClick={onRetry}>
          <Icon name="retry" /> Retry…
        </Button>
      )}
      {dialog.kind === "cancel" && isActive && <CancelDialog run={run.id} onClose={dialog.close} />}
    </>
  );
}

/** Whether the failure counts: it is not dismissed, or only an earlier one was. */
function isUndismissed({ dismissed_at, ended_at }: Schema<"RunDetails">): boolean {
  if (dismissed_at == null) return true;
  return ended_at !== null && Date.parse(dismissed_at) < Date.parse(ended_at);
}
