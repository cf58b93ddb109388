import { keepPreviousData } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import { api } from "@/api/client";
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
import { type Column, Table } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { formatCount, plural } from "@/format/number";
import { useListNavigation } from "@/keyboard/useListNavigation";
import { PauseButton } from "./PauseButton";
import { RecentRuns } from "./RecentRuns";

type Workflow = Schema<"WorkflowItem">;
type Schedule = Schema<"ScheduleInfo">;

/** Every workflow: how its last runs went, what it does now, and when it runs next. */
export function WorkflowsPage() {
  const [text, setText] = useSearchParam("q", "");
  const workflows = api.useQuery(
    "get",
    "/api/v1/workflows",
    { params: { query: { q: text, limit: 200, recent: 20 } } },
    { placeholderData: keepPreviousData },
  );
  return (
    <Page title="Workflows" actions={<SearchInput label="Search workflows" value={text} onChange={setText} />}>
      <Panel title="All workflows" aside={workflows.data && extentOf(workflows.data)} isFlush>
        <Answer query={workflows}>
          {({ items }) =>
            items.length > 0 ? <WorkflowTable workflows={items} /> : <NoWorkflows isSearch={text !== ""} />
          }
        </Answer>
      </Panel>
    </Page>
  );
}

/** How many there are; the list ends where people would search instead of reading on. */
function extentOf({ items, total }: { items: Workflow[]; total: number }): string {
  if (items.length === total) return plural(total, "workflow");
  return `the first ${formatCount(items.length)} of ${plural(total, "workflow")}: search for the others`;
}

function WorkflowTable({ workflows }: { workflows: Workflow[] }) {
  const navigate = useNavigate();
  const mayWrite = useMayWrite();
  const { data } = useAllSchedules();
  const schedules = useMemo(() => soonestOf(data?.items ?? []), [data]);
  const open = useCallback(
    (index: number) => void navigate({ to: "/workflows/$name", params: { name: workflows[index]?.name ?? "" } }),
    [navigate, workflows],
  );
  const selected = useListNavigation(workflows.length, open);
  return (
    <Table
      label="Workflows"
      columns={columnsOf(schedules, mayWrite)}
      rows={workflows}
      rowKey={({ name }) => name}
      selected={selected}
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

function columnsOf(schedules: Map<string, Schedule>, mayWrite: boolean): Column<Workflow>[] {
  const columns: Column<Workflow>[] = [
    { header: "Workflow", cell: (workflow) => <Name workflow={workflow} /> },
    {
      header: "Last 20 runs",
      width: "160px",
      isSecondary: true,
      cell: ({ recent_runs }) => <RecentRuns runs={recent_runs} />,
    },
    {
      header: "Last run",
      width: "120px",
      cell: ({ last_run }) => (last_run ? <LastRun run={last_run} /> : "never"),
    },
    {
      header: "When",
      width: "110px",
      isSecondary: true,
      cell: ({ last_run }) => last_run && <Time at={last_run.created_at} isRelative />,
    },
    { header: "Active", width: "70px", align: "right", cell: ({ active_runs }) => active_runs },
    { header: "Schedule", isSecondary: true, cell: ({ name }) => schedules.get(name)?.rule },
    {
      header: "Next slot",
      width: "120px",
      isSecondary: true,
      cell: (workflow) => <Next workflow={workflow} schedules={schedules} />,
    },
  ];
  const pause: Column<Workflow> = {
    header: "Actions",
    width: "110px",
    align: "right",
    isSecondary: true,
    cell: ({ name, paused }) => <PauseButton name={name} isPaused={paused} />,
  };
  return mayWrite ? [...columns, pause] : columns;
}

function Name({ workflow: { name, tags, paused, loaded } }: { workflow: Workflow }) {
  return (
    <>
      <Link to="/workflows/$name" params={{ name }}>
        {name}
      </Link>{" "}
      {tags.map((tag) => (
        <Badge key={tag}>{tag}</Badge>
      ))}{" "}
      {paused && <StateBadge state="paused" />} {!loaded && <Badge tone="amber">not loaded</Badge>}
    </>
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
