import type { Schema } from "@/api/types";
import { Icon } from "@/design/Icon/Icon";
import { formatDuration } from "@/format/duration";
import styles from "./LoadSteps.module.css";

type Step = Schema<"StepTime">;

/** The six steps of a load in their order: done with its time, failed, or not reached. */
export function LoadSteps({ steps }: { steps: Step[] }) {
  return (
    <ol className={styles.steps}>
      {steps.map((step, index) => (
        <li key={step.step} className={styles.step} data-state={stateOf(step)}>
          <span className={styles.mark} aria-hidden="true">
            <Mark step={step} number={index + 1} />
          </span>
          <span className={styles.name}>{step.step}</span>
          <span className={styles.time}>{timeOf(step)}</span>
        </li>
      ))}
    </ol>
  );
}

function stateOf({ failed, duration }: Step): "failed" | "done" | "open" {
  if (failed) return "failed";
  return duration == null ? "open" : "done";
}

function Mark({ step, number }: { step: Step; number: number }) {
  const state = stateOf(step);
  if (state === "open") return <>{number}</>;
  return <Icon name={state === "failed" ? "close" : "check"} size={14} />;
}

function timeOf({ failed, started_at, duration }: Step): string {
  if (failed) return "failed";
  if (duration != null) return formatDuration(duration);
  return started_at == null ? "not reached" : "in progress";
}
