import type { Schema } from "@/api/types";
import { usePauseWorkflow } from "@/api/usePauseWorkflow";
import { useDialog } from "@/app/useDialog";
import { useMayWrite } from "@/app/useMe";
import { Button } from "@/design/Button/Button";
import { Icon } from "@/design/Icon/Icon";
import { BackfillDialog } from "./backfill/BackfillDialog";
import { StartDialog } from "./StartDialog";

/** What can be done with a workflow; the open dialog is in the address, so that other pages lead to it. */
export function WorkflowActions({ workflow }: { workflow: Schema<"WorkflowDetails"> }) {
  const dialog = useDialog();
  const pause = usePauseWorkflow();
  if (!useMayWrite()) return null;
  return (
    <>
      <Button isBusy={pause.isBusy} onClick={() => pause.toggle(workflow.name, workflow.paused)}>
        <Icon name={workflow.paused ? "run" : "pause"} />
        {workflow.paused ? "Resume" : "Pause"}
      </Button>
      <Button onClick={() => dialog.open("backfill")}>
        <Icon name="backfill" /> Backfill…
      </Button>
      <Button look="primary" disabled={workflow.params === null} onClick={() => dialog.open("start")}>
        <Icon name="run" /> Start…
      </Button>
      {dialog.kind === "start" && <StartDialog workflow={workflow} onClose={dialog.close} />}
      {dialog.kind === "backfill" && (
        <BackfillDialog
          workflow={workflow}
          choice={dialog.subject}
          onChoice={(choice) => dialog.open("backfill", choice)}
          onClose={dialog.close}
        />
      )}
    </>
  );
}
