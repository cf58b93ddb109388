import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api } from "@/api/client";
import { messageOf } from "@/api/problem";
import type { Schema } from "@/api/types";
import { Button } from "@/design/Button/Button";
import { Dialog } from "@/design/Dialog/Dialog";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { FormError } from "@/design/FormError/FormError";
import { useToast } from "@/design/Toasts/Toasts";
import { plural } from "@/format/number";
import styles from "./BackfillDialog.module.css";
import { BackfillOptions } from "./BackfillOptions";
import { Calendar } from "./Calendar";
import { boundsOf, choiceText, choose, countByDay, type DayRange, dayOf, readChoice, weeksOf } from "./calendar";
import { useSlots } from "./useSlots";

interface Props {
  workflow: Schema<"WorkflowDetails">;
  /** The month that is shown and the days that are chosen, as the address has them. */
  choice: string;
  onChoice: (choice: string) => void;
  onClose: () => void;
}

/** Runs past slots of a schedule: days are chosen on a calendar of slots, and counted before anything starts. */
export function BackfillDialog({ workflow, choice, onChoice, onClose }: Props) {
  const { month, range } = readChoice(choice, dayOf(new Date()));
  const [limit, setLimit] = useState(1);
  const [isOnlyMissing, setOnlyMissing] = useState(true);
  const [key, setKey] = useState(workflow.schedule?.key ?? null);
  const asked = { workflow: workflow.name, key };
  const days = weeksOf(month).flat();
  const shown = useSlots({ ...asked, from: days[0]?.id ?? null, to: days.at(-1)?.id ?? null, isOnlyMissing: true });
  const to = range?.to ?? range?.from ?? null;
  const plan = useSlots({ ...asked, from: range?.from ?? null, to, isOnlyMissing });
  const start = useStart(onClose);
  const missing = useMemo(() => countByDay(shown.data?.slots ?? []), [shown.data]);
  const present = useMemo(() => countByDay(shown.data?.present ?? []), [shown.data]);
  const count = range === null ? 0 : (plan.data?.slots.length ?? 0);
  // Until the answer about these days arrives, the figures are those of the days chosen before.
  const isCurrent = !plan.isPlaceholderData;
  const body = {
    ...asked,
    ...boundsOf(range?.from ?? month, to ?? month),
    limit,
    only_missing: isOnlyMissing,
    preview: false,
  };
  if (workflow.schedule === null) return <NoSchedule onClose={onClose} />;
  return (
    <Dialog
      title={`Backfill ${workflow.name}`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            look="primary"
            disabled={count === 0 || !isCurrent}
            isBusy={start.isPending}
            onClick={() => start.mutate({ body })}
          >
            {count === 0 ? "Start runs" : `Start ${plural(count, "run")}`}
          </Button>
        </>
      }
    >
      <Calendar
        month={month}
        onMonth={(month) => onChoice(choiceText({ month, range }))}
        range={range}
        onDay={(day) => onChoice(choiceText({ month, range: choose(range, day) }))}
        missing={missing}
        present={present}
      />
      <p className={styles.legend}>
        <span className={styles.missing}>○</span> without a run <span className={styles.present}>✓</span> has had a run
      </p>
      <BackfillOptions
        schedules={workflow.schedules.map((one) => one.key)}
        scheduleKey={key}
        onKey={setKey}
        limit={limit}
        onLimit={setLimit}
        isOnlyMissing={isOnlyMissing}
        onOnlyMissing={setOnlyMissing}
      />
      <p className={styles.summary} role="status">
        {summaryOf(range, isCurrent ? plan.data : undefined)}
      </p>
      <FormError error={plan.error ?? shown.error} />
    </Dialog>
  );
}

function useStart(onClose: () => void) {
  const announce = useToast();
  const navigate = useNavigate();
  return api.useMutation("post", "/api/v1/backfills", {
    onSuccess: ({ slots }) => {
      announce(`The backfill starts ${plural(slots.length, "run")}.`);
      onClose();
      void navigate({ to: "/backfills" });
    },
    onError: (error) => announce(messageOf(error), "error"),
  });
}

function summaryOf(range: DayRange | null, plan: Schema<"BackfillPlan"> | undefined): string {
  if (range === null) return "Choose the first day.";
  const days =
    range.to === null ? `${range.from} (choose the last day, or start this one)` : `${range.from} to ${range.to}`;
  if (plan === undefined) return `${days}: …`;
  const runs = plural(plan.slots.length, "slot gets a run", "slots get a run");
  const had = plan.present.length > 0 ? `, ${plural(plan.present.length, "slot has", "slots have")} had one` : "";
  return `${days}: ${runs}${had}.`;
}

function NoSchedule({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Backfill" onClose={onClose}>
      <EmptyState title="This workflow has no schedule, so it has no slots to run." />
    </Dialog>
  );
}
