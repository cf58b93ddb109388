import { api } from "@/api/client";
import { itemsOf, PAGED, useMore } from "@/api/paging";
import type { Schema } from "@/api/types";
import { Answer } from "@/design/Answer/Answer";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { Time } from "@/design/Time/Time";
import { type VirtualColumn, VirtualTable } from "@/design/VirtualTable/VirtualTable";

type Event = Schema<"RunTransition">;

/** Every transition of a run and of its tasks, oldest first, with who made it and why. */
export function RunEvents({ run }: { run: string }) {
  const query = api.useInfiniteQuery(
    "get",
    "/api/v1/runs/{run}/events",
    { params: { path: { run }, query: { limit: 200 } } },
    PAGED,
  );
  const more = useMore(query);
  return (
    <Answer query={query}>
      {(data) => (
        <VirtualTable
          label="Events of this run"
          columns={COLUMNS}
          rows={itemsOf(data)}
          rowKey={({ number }) => String(number)}
          total={data.pages[0]?.total}
          onEnd={more}
        />
      )}
    </Answer>
  );
}

const COLUMNS: VirtualColumn<Event>[] = [
  { header: "Time", width: "124px", cell: ({ at }) => <Time at={at} isExact /> },
  { header: "What", width: "minmax(120px, 1fr)", cell: ({ task, index }) => nameOf(task, index) },
  { header: "Became", width: "132px", cell: ({ after }) => <StateBadge state={after} /> },
  { header: "Attempt", width: "68px", align: "right", isSecondary: true, cell: ({ attempt }) => attempt || "" },
  { header: "By", width: "minmax(80px, 0.6fr)", isSecondary: true, cell: ({ actor }) => actor },
  { header: "Reason", width: "minmax(140px, 1.5fr)", isSecondary: true, cell: ({ reason }) => reason },
];

function nameOf(task: string | null, index: number | null): string {
  if (task === null) return "the run";
  return index === null ? task : `${task}[${index}]`;
}
