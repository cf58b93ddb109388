import { Link } from "@tanstack/react-router";
import { api } from "@/api/client";
import { itemsOf, PAGED, useMore } from "@/api/paging";
import { useSearchParam } from "@/app/useSearchParam";
import { Answer } from "@/design/Answer/Answer";
import { Elapsed } from "@/design/Elapsed/Elapsed";
import { FilterChips } from "@/design/FilterChips/FilterChips";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { inOrder } from "@/design/StateBar/order";
import { StateBar } from "@/design/StateBar/StateBar";
import { stateLabel } from "@/design/tone";
import { type VirtualColumn, VirtualTable } from "@/design/VirtualTable/VirtualTable";
import { formatCount } from "@/format/number";
import { isWaiting } from "../state";
import type { Task } from "../useRunTasks";
import styles from "./Elements.module.css";

/** The elements of a mapped task: how many are in each state, and a list of any length with a filter by state. */
export function Elements({ run, task }: { run: string; task: Task }) {
  const [state, setState] = useSearchParam("state", "");
  const counts = task.elements ?? {};
  return (
    <div className={styles.elements}>
      <div className={styles.head}>
        <StateBar counts={counts} label={`Elements of ${task.task}`} />
        <FilterChips
          label="Filter by state"
          chips={[
            { id: "", label: "all", isOn: state === "" },
            ...inOrder(counts).map(([one, count]) => ({
              id: one,
              label: `${formatCount(count)} ${stateLabel(one)}`,
              isOn: state === one,
            })),
          ]}
          onToggle={setState}
        />
      </div>
      <ElementTable run={run} task={task.task} state={state} />
    </div>
  );
}

function ElementTable({ run, task, state }: { run: string; task: string; state: string }) {
  const states = state === "" ? {} : { state: [state as Task["state"]] };
  const query = api.useInfiniteQuery(
    "get",
    "/api/v1/runs/{run}/tasks",
    { params: { path: { run }, query: { task, limit: 200, ...states } } },
    PAGED,
  );
  const more = useMore(query);
  return (
    <div className={styles.table}>
      <Answer query={query}>
        {(data) => (
          <VirtualTable
            label={`Elements of ${task}`}
            columns={COLUMNS}
            rows={itemsOf(data)}
            rowKey={({ index }) => String(index)}
            total={data.pages[0]?.total}
            onEnd={more}
          />
        )}
      </Answer>
    </div>
  );
}

const COLUMNS: VirtualColumn<Task>[] = [
  {
    header: "Element",
    width: "84px",
    cell: ({ task, index }) => (
      <Link
        to="."
        search={(search: object) => ({ ...search, task, index, attempt: undefined, view: undefined })}
        replace
        data-stretch
      >
        [{index}]
      </Link>
    ),
  },
  { header: "State", width: "132px", cell: ({ state }) => <StateBadge state={state} /> },
  { header: "Tries", width: "52px", align: "right", cell: ({ attempts }) => attempts || "" },
  {
    header: "Took",
    width: "80px",
    align: "right",
    cell: ({ state, started_at, ended_at }) => (isWaiting(state) ? "" : <Elapsed from={started_at} to={ended_at} />),
  },
  {
    header: "Why",
    width: "minmax(140px, 1fr)",
    isSecondary: true,
    cell: ({ reason, error }) => <span title={error?.message ?? reason}>{error?.message ?? reason}</span>,
  },
];
