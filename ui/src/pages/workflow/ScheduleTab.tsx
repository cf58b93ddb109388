import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Facts } from "@/design/Facts/Facts";
import { Panel } from "@/design/Panel/Panel";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { type Column, Table } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { formatCount } from "@/format/number";
import styles from "./ScheduleTab.module.css";

type Slot = Schema<"UpcomingSlot">;

/** When the clock starts a workflow: its rules, and the next slots. */
export function ScheduleTab({ workflow }: { workflow: Schema<"WorkflowDetails"> }) {
  const slots = api.useQuery("get", "/api/v1/workflows/{name}/schedule/preview", {
    params: { path: { name: workflow.name }, query: { count: 20 } },
  });
  if (workflow.schedules.length === 0) {
    return (
      <Panel>
        <EmptyState title="This workflow has no schedule.">
          Give it one in its code, for example <code>schedule=tm.Cron("0 6 * * *", timezone="Europe/Berlin")</code>.
        </EmptyState>
      </Panel>
    );
  }
  return (
    <div className={styles.schedules}>
      {workflow.schedules.map((schedule) => (
        <Panel key={schedule.key} title={schedule.rule} aside={schedule.paused && <StateBadge state="paused" />}>
          <Facts facts={factsOf(schedule)} />
        </Panel>
      ))}
      <Panel title="Next slots" isFlush>
        <Answer query={slots}>
          {({ items }) => (
            <Table
              label="Slots"
              columns={workflow.schedules.length > 1 ? [...COLUMNS, KEY] : COLUMNS}
              rows={items}
              rowKey={({ key, slot }) => `${key} ${slot}`}
            />
          )}
        </Answer>
      </Panel>
    </div>
  );
}

const CATCHUP: Record<string, string> = {
  all: "every missed slot gets a run",
  latest: "the latest missed slot gets a run",
  none: "missed slots get no run",
};

function factsOf(schedule: Schema<"ScheduleInfo">): Parameters<typeof Facts>[0]["facts"] {
  return [
    ["Time zone", schedule.timezone],
    ["Catch-up", CATCHUP[schedule.catchup] ?? schedule.catchup],
    ["Processed until", schedule.last === null ? "not yet" : <Time key="last" at={schedule.last} />],
    ["Dropped slots", formatCount(schedule.dropped)],
    ["Starts", schedule.start === null ? "no bound" : <Time key="start" at={schedule.start} />],
    ["Ends", schedule.end === null ? "no bound" : <Time key="end" at={schedule.end} />],
  ];
}

const COLUMNS: Column<Slot>[] = [
  { header: "Slot", cell: ({ slot }) => <Time at={slot} /> },
  { header: "In", cell: ({ slot }) => <Time at={slot} isRelative /> },
  { header: "In its time zone", isSecondary: true, cell: ({ local }) => local.replace("T", " ") },
];

const KEY: Column<Slot> = { header: "Schedule", isSecondary: true, cell: ({ key }) => key };
