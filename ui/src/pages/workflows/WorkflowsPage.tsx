import { Link, useNavigate } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import { api } from "@/api/client";
import { itemsOf, PAGED, useMore } from "@/api/paging";
import type { Schema } from "@/api/types";
import { useAllSchedules } from "@/api/wholeLists";
import { useMayWrite } from "@/app/useMe";
import { useSearchParam } from "@/app/useSearchParam";
import { Answer } from "@/design/Answer/Answer";
import { Badge } from "@/design/Badge/Badge";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { SearchInput } from "@/design/SearchInput/SearchInput";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { Time } from "@/design/Time/Time";
import { type VirtualColumn, VirtualTable } from "@/design/VirtualTable/VirtualTable";
import { plural } from "@/format/number";
import { useListNavigation } from "@/keyboard/useListNavigation";
import { PauseButton } from "./PauseButton";
import { RecentRuns } from "./RecentRuns";
import styles from "./WorkflowsPage.module.css";

type Workflow = Schema<"WorkflowItem">;
type Schedule = Schema<"ScheduleInfo">;

/** Every workflow by name: how its last runs went, what it does now, and when it runs next. */
export function WorkflowsPage() {
  const [text, setText] = useSearchParam("q", "");
  const query = api.useInfiniteQuery(
    "get",
    "/api/v1/workflows",
    { params: { query: { q: text, limit: 100, recent: 20 } } },
    { ...PAGED, placeholderData: (previous) => previous },
  );
  const { data } = query;
  const workflows = useMemo(() => itemsOf(data), [data]);
  const total = data?.pages[0]?.total ?? 0;
  const loadMore = useMore(query);
  return (
    <Page title="Workflows" isFull actions={<SearchInput label="Search workflows" value={text} onChange={setText} />}>
      <Panel title="All workflows" aside={data && plural(total, "workflow")} isFlush className={styles.panel}>
        <Answer query={query}>
          {() =>
            workflows.length > 0 ? (
              <WorkflowTable workflows={workflows} total={total} onEnd={loadMore} />
            ) : (
              <NoWorkflows isSearch={text !== ""} />
            )
          }
        </Answer>
      </Panel>
    </Page>
  );
}

interface Props {
  workflows: Workflow[];
  total: number;
  onEnd: () => void;
}

function WorkflowTable({ workflows, total, onEnd }: Props) {
  const navigate = useNavigate();
  const mayWrite = useMayWrite();
  const { data } = useAllSchedules();
  const schedules = useMemo(() => soonestOf(data?.items ?? []), [data]);
  const open = useCallback(
    (index: number) => void navigate({ to: "/workflows/$name", params: { name: workflows[index]?.name ?? "" } }),
    [navigate, workflows],
  );
  const selected = useListNavigation(workflows.length, open);
  const columns = useMemo(() => columnsOf(schedules, mayWrite), [schedules, mayWrite]);
  return (
    <VirtualTable
      label="Workflows"
      columns={columns}
      rows={workflows}
      rowKey={({ name }) => name}
      selected={selected}
      total={total}
      onEnd={onEnd}
    />
  );
}

/** The schedule of each workflow that has the next slot. */
function soonestOf(schedules: Schedule[]): Map<string, Schedule> {
  const found = new Map<string, Schedule>();
  for (const one of schedules) {
    const known = found.get(one.workflow)?.next[0];
    const next = one.next[0];
    if (known === undefined || (next !== undefined && Date.parse(next) < Date.parse(known)))
      found.set(one.workflow, one);
  }
  return found;
}

function columnsOf(schedules: Map<string, Schedule>, mayWrite: boolean): VirtualColumn<Workflow>[] {
  const columns: VirtualColumn<Workflow>[] = [
    { header: "Workflow", width: "minmax(190px, 1fr)", cell: (workflow) => <Name workflow={workflow} /> },
    {
      header: "Last 20 runs",
      width: "152px",
      isSecondary: true,
      cell: ({ recent_runs }) => <RecentRuns runs={recent_runs} />,
    },
    {
      header: "Last run",
      width: "104px",
      cell: ({ last_run }) => (last_run ? <LastRun run={last_run} /> : "never"),
    },
    {
      header: "When",
      width: "92px",
      isSecondary: true,
      cell: ({ last_run }) => last_run && <Time at={last_run.created_at} isRelative />,
    },
    { header: "Active", width: "60px", align: "right", cell: ({ active_runs }) => active_runs },
    {
      header: "Schedule",
      width: "minmax(96px, 160px)",
      isSecondary: true,
      cell: ({ name }) => schedules.get(name)?.rule,
    },
    {
      header: "Next slot",
      width: "96px",
      isSecondary: true,
      cell: (workflow) => <Next workflow={workflow} schedules={schedules} />,
    },
  ];
  const pause: VirtualColumn<Workflow> = {
    header: "Actions",
    width: "96px",
    align: "right",
    isSecondary: true,
    cell: ({ name, paused }) => <PauseButton name={name} isPaused={paused} />,
  };
  return mayWrite ? [...columns, pause] : columns;
}

/** A long name ends in an ellipsis; what is said about the workflow stays in sight. */
function Name({ workflow: { name, tags, paused, loaded } }: { workflow: Workflow }) {
  return (
    <span className={styles.name}>
      <Link to="/workflows/$name" params={{ name }} title={name}>
        {name}
      </Link>
      {tags.map((tag) => (
        <Badge key={tag}>{tag}</Badge>
      ))}
      {paused && <StateBadge state="paused" />}
      {!loaded && <Badge tone="amber">not loaded</Badge>}
    </span>
  );
}

function LastRun({ run: { id, state } }: { run: Schema<"LastRun"> }) {
  return (
    <Link to="/runs/$run" params={{ run: id }}>
      <StateBadge state={state} />
    </Link>
  );
}

function Next({ workflow, schedules }: { workflow: Workflow; schedules: Map<string, Schedule> }) {
  const next = schedules.get(workflow.name)?.next[0];
  if (next === undefined || workflow.paused) return null;
  return <Time at={next} isRelative />;
}

function NoWorkflows({ isSearch }: { isSearch: boolean }) {
  if (isSearch) return <EmptyState title="No workflow has this name." />;
  return (
    <EmptyState title="No workflow is loaded." commands={["tidemill package new hello", "tidemill dev hello"]}>
      A workflow is a Python file with functions as tasks. These commands write one and run it.
    </EmptyState>
  );
}
