import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Answer } from "@/design/Answer/Answer";
import { Badge } from "@/design/Badge/Badge";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Panel } from "@/design/Panel/Panel";
import { type Column, Table } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { stateLabel, type Tone } from "@/design/tone";
import { plural } from "@/format/number";

type Recovery = Schema<"Recovery">;

const COLUMNS: Column<Recovery>[] = [
  { header: "When", width: "120px", cell: ({ at }) => <Time at={at} /> },
  { header: "Component", width: "220px", cell: ({ component, name }) => `${component} ${name}` },
  {
    header: "What happened",
    width: "150px",
    cell: ({ action }) => <Badge tone={toneOfAction(action)}>{stateLabel(action)}</Badge>,
  },
  {
    header: "Failures in a row",
    align: "right",
    width: "120px",
    isSecondary: true,
    cell: ({ failures }) => failures,
  },
  { header: "Reason", cell: ({ reason }) => reason || "–" },
];

/** What the supervisor did for the reactor and its accumulators: restarts with their reasons, and where it gave up. */
export function RestartsTab({ name }: { name: string }) {
  const recoveries = api.useQuery("get", "/api/v1/reactors/{name}/recoveries", {
    params: { path: { name }, query: { limit: 200 } },
  });
  return (
    <Panel title="Restart history" aside={recoveries.data && plural(recoveries.data.total, "entry", "entries")} isFlush>
      <Answer query={recoveries}>
        {({ items }) =>
          items.length > 0 ? (
            <Table label="Restarts" columns={COLUMNS} rows={items} rowKey={keyOf} />
          ) : (
            <EmptyState title="Nothing was restarted.">
              The supervisor restarts what crashes, with growing delays. Its restarts would be listed here.
            </EmptyState>
          )
        }
      </Answer>
    </Panel>
  );
}

function keyOf({ at, component, name, action, failures }: Recovery): string {
  return [at, component, name, action, failures].join(" ");
}

const TONES: Record<string, Tone> = { restarted: "green", failed: "red", crashed: "red", undelivered: "red" };

function toneOfAction(action: string): Tone {
  return TONES[action] ?? "amber";
}
