import { Link } from "@tanstack/react-router";
import { Elapsed } from "@/design/Elapsed/Elapsed";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { StateBar } from "@/design/StateBar/StateBar";
import { Time } from "@/design/Time/Time";
import { type VirtualColumn, VirtualTable } from "@/design/VirtualTable/VirtualTable";
import { isWaiting } from "./state";
import type { Task } from "./useRunTasks";

/** The tasks of a run as a list, each with what it waits for. */
export function TaskTable({ tasks, why, selected }: { tasks: Task[]; why: Why; selected: string | null }) {
  const index = tasks.findIndex((task) => task.task === selected);
  return (
    <VirtualTable
      label="Tasks of this run"
      columns={columnsOf(why)}
      rows={tasks}
      rowKey={(task) => task.task}
      selected={index}
    />
  );
}

/** Why each waiting task waits, by task. */
export type Why = Record<string, string[]>;

function columnsOf(why: Why): VirtualColumn<Task>[] {
  return [
    {
      header: "Task",
      width: "minmax(140px, 1.2fr)",
      cell: ({ task }) => (
        <Link
          to="."
          search={(search: object) => ({ ...search, task, index: undefined, attempt: undefined, view: undefined })}
          replace
          data-stretch
        >
          {task}
        </Link>
      ),
    },
    { header: "State", width: "132px", cell: ({ state }) => <StateBadge state={state} /> },
    {
      header: "Elements",
      width: "96px",
      isSecondary: true,
      cell: ({ task, elements }) => elements && <StateBar counts={elements} label={`Elements of ${task}`} />,
    },
    { header: "Tries", width: "60px", align: "right", isSecondary: true, cell: ({ attempts }) => attempts || "" },
    {
      header: "Started",
      width: "124px",
      isSecondary: true,
      cell: ({ started_at }) => started_at && <Time at={started_at} />,
    },
    {
      header: "Took",
      width: "80px",
      align: "right",
      cell: ({ state, started_at, ended_at }) => (isWaiting(state) ? "" : <Elapsed from={started_at} to={ended_at} />),
    },
    { header: "Executor", width: "96px", isSecondary: true, cell: ({ executor }) => executor },
    {
      header: "Why",
      width: "minmax(160px, 2fr)",
      isSecondary: true,
      cell: ({ task, state, reason, error }) => {
        const text = isWaiting(state) ? (why[task]?.join("; ") ?? reason) : (error?.message ?? reason);
        return <span title={text}>{text}</span>;
      },
    },
  ];
}
