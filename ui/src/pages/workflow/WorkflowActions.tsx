import type { Schema } from "@/api/types";
import { usePauseWorkflow } from "@/api/usePauseWorkflow";
import { useMayWrite } from "@/app/useMe";
import { useSearchParam } from "@/app/useSearchParam";
import { Button } from "@/design/Button/Button";
import { Icon } from "@/design/Icon/Icon";
import { BackfillDialog } from "./backfill/BackfillDialog";
import { StartDialog } from "./StartDialog";

/** What can be done with a workflow; the open dialog is in the address, so that other pages lead to it. */
export function WorkflowActions({ workflow }: { workflow: Schema<"WorkflowDetails"> }) {
  const [dialog, setDialog] = useSearchParam("dialog", "");
  const pause = usePauseWorkflow();
  if (!useMayWrite()) return null;
  const close = () => setDialog("");
  return (
    <>
      <Button isBusy={pause.isBusy} onClick={() => pause.toggle(workflow.name, workflow.paused)}>
        <Icon name={workflow.paused ? "run" : "pause"} />
        {workflow.paused ? "Resume" : "Pause"}
      </Button>
      <Button onClick={() => setDialog("backfill")}>
        <Icon name="backfill" /> Backfill…
      </Button>
      <Button look="primary" disabled={workflow.params === null} onClick={() => setDialog("start")}>
        <Icon name="run" /> Start…
      </Button>
      {dialog === "start" && <StartDialog workflow={workflow} onClose={close} />}
      {dialog === "backfill" && <BackfillDialog workflow={workflow} onClose={close} />}
    </>
  );
}
