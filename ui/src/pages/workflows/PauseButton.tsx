import { usePauseWorkflow } from "@/api/usePauseWorkflow";
import { Button } from "@/design/Button/Button";
import { Icon } from "@/design/Icon/Icon";

/** Pauses or resumes a workflow of the list. */
export function PauseButton({ name, isPaused }: { name: string; isPaused: boolean }) {
  const { toggle, isBusy } = usePauseWorkflow();
  const action = isPaused ? "Resume" : "Pause";
  return (
    <Button look="quiet" aria-label={`${action} ${name}`} isBusy={isBusy} onClick={() => toggle(name, isPaused)}>
      <Icon name={isPaused ? "run" : "pause"} size={14} /> {action}
    </Button>
  );
}
