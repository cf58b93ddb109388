import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Answer } from "@/design/Answer/Answer";
import { Badge } from "@/design/Badge/Badge";
import { Meter } from "@/design/Meter/Meter";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { type Column, Table } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { formatElapsed } from "@/format/duration";
import { plural } from "@/format/number";
import { secondsBetween } from "@/format/time";
import { useNow } from "@/format/useNow";

type Node = Schema<"NodeSummary">;

/** Beats and loads are no events, because each node would send several a second: the page asks instead. */
const BEAT = 2000;

/** Servers, workers and nodes of programs on the store: which one leads, and how busy each is. */
export function NodesPage() {
  const options = { refetchInterval: BEAT };
  const nodes = api.useQuery("get", "/api/v1/nodes", { params: { query: { limit: 500 } } }, options);
  const leader = nodes.data?.items.find(({ leads }) => leads);
  return (
    <Page
      title="Nodes"
      subtitle={nodes.data && (leader ? `${leader.name} leads: it plans runs and gives out tasks.` : <NoLeader />)}
    >
      <Panel title="On this store" aside={nodes.data && plural(nodes.data.total, "node")} isFlush>
        <Answer query={nodes}>
          {({ items }) => <Table label="Nodes" columns={COLUMNS} rows={items} rowKey={({ id }) => id} />}
        </Answer>
      </Panel>
    </Page>
  );
}

const COLUMNS: Column<Node>[] = [
  {
    header: "Node",
    cell: ({ name, leads }) => (
      <>
        <code>{name}</code> {leads && <Badge tone="violet">leader</Badge>}
      </>
    ),
  },
  { header: "Kind", cell: ({ kind }) => kind },
  { header: "State", cell: ({ state }) => <StateBadge state={state} /> },
  {
    header: "Load",
    cell: ({ name, running, concurrency }) => (
      <Meter used={running} size={concurrency} label={`Running tasks of ${name}`} />
    ),
  },
  { header: "Last beat", cell: ({ last_beat }) => <Time at={last_beat} isRelative /> },
  { header: "Up for", isSecondary: true, cell: ({ started_at }) => <UpFor since={started_at} /> },
  {
    header: "Labels",
    isSecondary: true,
    cell: ({ labels }) => labels.map((label) => <Badge key={label}>{label}</Badge>),
  },
  {
    header: "Process",
    isSecondary: true,
    cell: ({ host, pid }) => (
      <code>
        {host}:{pid}
      </code>
    ),
  },
];

function UpFor({ since }: { since: string }) {
  const now = useNow();
  return <>{formatElapsed(secondsBetween(since, null, now))}</>;
}

function NoLeader() {
  return (
    <Badge tone="red">No node leads: schedules wait. Start a server, or look at the logs of those that run.</Badge>
  );
}
