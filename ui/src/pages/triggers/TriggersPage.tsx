import { Link } from "@tanstack/react-router";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useMayWrite } from "@/app/useMe";
import { Badge } from "@/design/Badge/Badge";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { RecordsPage } from "@/design/RecordsPage/RecordsPage";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import type { Column } from "@/design/Table/Table";
import { PauseTrigger } from "./PauseTrigger";
import { TriggerSource } from "./TriggerSource";

type Trigger = Schema<"TriggerInfo">;

/** What starts workflows besides the clock. */
export function TriggersPage() {
  const mayWrite = useMayWrite();
  const triggers = api.useQuery("get", "/api/v1/triggers", { params: { query: { limit: 500 } } });
  return (
    <RecordsPage
      title="Triggers"
      noun="trigger"
      query={triggers}
      columns={mayWrite ? [...COLUMNS, PAUSE] : COLUMNS}
      rowKey={({ name }) => name}
      searchText={({ name, kind, workflows }) => `${name} ${kind} ${workflows.join(" ")}`}
      empty={<NoTriggers />}
    />
  );
}

const KINDS: Record<string, string> = { poll: "polled", on_firing: "on firing", on_output: "on output" };

const COLUMNS: Column<Trigger>[] = [
  { header: "Trigger", cell: ({ name }) => <code>{name}</code> },
  { header: "Kind", cell: ({ kind }) => KINDS[kind] ?? kind },
  { header: "Watches", isSecondary: true, cell: (trigger) => <TriggerSource trigger={trigger} /> },
  { header: "Starts", cell: ({ workflows }) => <Workflows names={workflows} /> },
  {
    header: "State",
    width: "110px",
    cell: ({ paused }) => (paused ? <StateBadge state="paused" /> : <Badge tone="green">active</Badge>),
  },
];

const PAUSE: Column<Trigger> = {
  header: "Actions",
  align: "right",
  width: "110px",
  cell: ({ name, paused }) => <PauseTrigger name={name} isPaused={paused} />,
};

function Workflows({ names }: { names: string[] }) {
  return names.map((name, index) => (
    <span key={name}>
      {index > 0 && ", "}
      <Link to="/workflows/$name" params={{ name }}>
        {name}
      </Link>
    </span>
  ));
}

function NoTriggers() {
  return (
    <EmptyState title="No loaded workflow has a trigger.">
      A trigger starts a workflow when something happens: a reactor fires (<code>tm.on_firing</code>), a node of a graph
      gives a value (<code>tm.on_output</code>), or a function that the leader polls says so (<code>tm.trigger</code>).
    </EmptyState>
  );
}
