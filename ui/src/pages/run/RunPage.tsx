import { useParams } from "@tanstack/react-router";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useSearchParam } from "@/app/useSearchParam";
import { Answer } from "@/design/Answer/Answer";
import { Page } from "@/design/Page/Page";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { Tabs } from "@/design/Tabs/Tabs";
import { Gantt } from "./gantt/Gantt";
import { RunFacts } from "./head/RunFacts";
import { RunActions } from "./RunActions";
import { RunEvents } from "./RunEvents";
import styles from "./RunPage.module.css";
import { useRerun } from "./rerun/useRerun";
import { TaskGraph } from "./TaskGraph";
import { TaskTable } from "./TaskTable";
import { TaskPanel } from "./task/TaskPanel";
import { type RunData, useRunData } from "./useRunData";
import { useSelection } from "./useSelection";

/** One run, live: its tasks as a graph, over time and as a list, and one task in detail. */
export function RunPage() {
  const { run: id } = useParams({ strict: false }) as { run: string };
  const query = api.useQuery("get", "/api/v1/runs/{run}", { params: { path: { run: id } } });
  const data = useRunData(id, query.data);
  const rerun = useRerun(data);
  const run = query.data;
  return (
    <Page
      title={run ? `Run of ${run.workflow}` : "Run"}
      mark={run && <StateBadge state={run.state} />}
      subtitle={run && (reasonOf(run) ?? waitOf(run, data))}
      actions={run && <RunActions run={run} onRetry={rerun.retry} onClear={() => rerun.clear([])} />}
      isFull
    >
      <Answer query={query}>
        {(run) => (
          <>
            <RunFacts run={run} handlers={data.handlers} />
            <RunBody data={data} onRerun={(task) => rerun.clear([task])} />
          </>
        )}
      </Answer>
      {rerun.dialog}
    </Page>
  );
}

/** What a queued run waits for: all of its tasks wait for the same. */
function waitOf({ state }: Schema<"RunDetails">, { why }: RunData): string | undefined {
  return state === "queued" ? Object.values(why)[0]?.join(" ") : undefined;
}

/** Why the run ended as it did, or what an operator said about it. */
function reasonOf({ error, reason }: Schema<"RunDetails">): string | undefined {
  if (error !== null) return `${error.task}: ${error.type}: ${error.message}`;
  return reason === "" ? undefined : reason;
}

const TABS = [
  { id: "graph", label: "Graph" },
  { id: "gantt", label: "Gantt" },
  { id: "tasks", label: "Tasks" },
  { id: "events", label: "Events" },
];

function RunBody({ data, onRerun }: { data: RunData; onRerun: (task: string) => void }) {
  const [tab] = useSearchParam("tab", "graph");
  const [selection, select] = useSelection();
  return (
    <div className={styles.split} data-open={selection !== null || undefined}>
      <section className={styles.main} aria-label="Tasks">
        <Tabs tabs={TABS} current={tab} />
        <div className={styles.view}>
          <RunView tab={tab} data={data} selected={selection?.task ?? null} onSelect={(task) => select({ task })} />
        </div>
      </section>
      {selection !== null && <TaskPanel data={data} selection={selection} onChange={select} onRerun={onRerun} />}
    </div>
  );
}

interface ViewProps {
  tab: string;
  data: RunData;
  selected: string | null;
  onSelect: (task: string) => void;
}

function RunView({ tab, data, selected, onSelect }: ViewProps) {
  const { query, tasks } = data;
  if (tab === "events") return <RunEvents run={data.id} />;
  return (
    <Answer query={query}>
      {() => {
        if (tab === "gantt") return <Gantt data={data} selected={selected} />;
        if (tab === "tasks") return <TaskTable tasks={tasks} why={data.why} selected={selected} />;
        return <TaskGraph tasks={tasks} edges={data.edges} why={data.why} selected={selected} onSelect={onSelect} />;
      }}
    </Answer>
  );
}
