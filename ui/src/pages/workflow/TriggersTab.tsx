import { Link } from "@tanstack/react-router";
import type { Schema } from "@/api/types";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Panel } from "@/design/Panel/Panel";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { type Column, Table } from "@/design/Table/Table";
import { formatDuration } from "@/format/duration";

type Trigger = Schema<"TriggerInfo">;

/** What starts a workflow besides the clock: polls, firings of reactors, outputs of graphs. */
export function TriggersTab({ triggers }: { triggers: Trigger[] }) {
  return (
    <Panel title="Triggers" aside={<Link to="/triggers">All triggers</Link>} isFlush>
      {triggers.length === 0 ? (
        <EmptyState title="This workflow has no trigger.">
          A trigger starts it when a poll finds something, a reactor fires or a node of a graph returns a value.
        </EmptyState>
      ) : (
        <Table label="Triggers of this workflow" columns={COLUMNS} rows={triggers} rowKey={({ name }) => name} />
      )}
    </Panel>
  );
}

const COLUMNS: Column<Trigger>[] = [
  { header: "Trigger", cell: ({ name }) => name },
  { header: "Kind", cell: ({ kind }) => kind.replaceAll("_", " ") },
  { header: "On", cell: (trigger) => <Source trigger={trigger} /> },
  { header: "When", isSecondary: true, cell: ({ when }) => when && <code>{when}</code> },
  { header: "", align: "right", cell: ({ paused }) => paused && <StateBadge state="paused" /> },
];

function Source({ trigger }: { trigger: Trigger }) {
  if (trigger.reactor) {
    return (
      <Link to="/reactors/$name" params={{ name: trigger.reactor }}>
        {trigger.reactor}
      </Link>
    );
  }
  if (trigger.graph) return `${trigger.graph} · ${trigger.node}`;
  return trigger.every ? `every ${formatDuration(trigger.every)}` : "";
}
