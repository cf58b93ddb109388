import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { Schema } from "@/api/types";
import { useMayWrite } from "@/app/useMe";
import { Badge } from "@/design/Badge/Badge";
import { Button } from "@/design/Button/Button";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { type Column, Table } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { plural } from "@/format/number";
import { PauseSchedule } from "./PauseSchedule";
import { scheduleKey } from "./useLateSlots";

type Schedule = Schema<"ScheduleInfo">;

interface Props {
  schedules: Schedule[];
  /** Whether no workflow has a schedule. */
  isEmpty?: boolean;
  /** Of the schedules that are late, how many slots are. */
  lateSlots?: Map<string, number>;
  emptyTitle?: string;
}

/** The schedules: rule, time zone, catch-up, and the next slot, or how many are late. */
export function ScheduleTable({
  schedules,
  isEmpty = false,
  lateSlots,
  emptyTitle = "No workflow with a schedule has this name.",
}: Props) {
  const mayWrite = useMayWrite();
  const [isOpen, setOpen] = useState(false);
  if (isEmpty) return <NoSchedules />;
  if (schedules.length === 0) return <EmptyState title={emptyTitle} />;
  const columns = lateSlots === undefined ? COLUMNS : COLUMNS.toSpliced(1, 0, lateColumn(lateSlots));
  const hidden = isOpen ? 0 : Math.max(0, schedules.length - SHOWN);
  return (
    <>
      <Table
        label="Schedules"
        columns={mayWrite ? [...columns, PAUSE] : columns}
        rows={schedules.slice(0, schedules.length - hidden)}
        rowKey={scheduleKey}
      />
      {hidden > 0 && (
        <Button look="quiet" onClick={() => setOpen(true)}>
          Show {plural(hidden, "more schedule", "more schedules")}
        </Button>
      )}
    </>
  );
}

/** Rows that are always shown: the search finds the others. */
const SHOWN = 50;

const COLUMNS: Column<Schedule>[] = [
  {
    header: "Workflow",
    cell: ({ workflow }) => (
      <Link to="/workflows/$name" params={{ name: workflow }}>
        {workflow}
      </Link>
    ),
  },
  { header: "Rule", cell: ({ expression, rule }) => <code>{expression ?? rule}</code> },
  { header: "Time zone", isSecondary: true, cell: ({ timezone }) => timezone },
  { header: "Catch-up", isSecondary: true, cell: ({ catchup }) => catchup },
  { header: "Next slot", cell: ({ next }) => <NextSlot slots={next} /> },
  { header: "Processed until", isSecondary: true, cell: ({ last }) => last && <Time at={last} isRelative /> },
  { header: "Dropped", isSecondary: true, align: "right", cell: ({ dropped }) => dropped },
  {
    header: "State",
    width: "110px",
    cell: ({ paused }) => (paused ? <StateBadge state="paused" /> : <Badge tone="green">active</Badge>),
  },
];

const PAUSE: Column<Schedule> = {
  header: "Actions",
  align: "right",
  width: "110px",
  cell: ({ workflow, paused }) => <PauseSchedule workflow={workflow} isPaused={paused} />,
};

function lateColumn(lateSlots: Map<string, number>): Column<Schedule> {
  return {
    header: "Late",
    cell: (schedule) => <Badge tone="amber">{plural(lateSlots.get(scheduleKey(schedule)) ?? 0, "slot")}</Badge>,
  };
}

function NextSlot({ slots: [first] }: { slots: string[] }) {
  if (first === undefined) return "none";
  return <Time at={first} isRelative />;
}

function NoSchedules() {
  return (
    <EmptyState title="No loaded workflow has a schedule.">
      Give one with <code>tm.Workflow("report", schedule=tm.Cron("0 6 * * *", timezone="Europe/Berlin"))</code>.
    </EmptyState>
  );
}
