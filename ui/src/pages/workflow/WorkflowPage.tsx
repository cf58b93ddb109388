import { Link, useParams } from "@tanstack/react-router";
import { Fragment } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useSearchParam } from "@/app/useSearchParam";
import { About } from "@/design/About/About";
import { Answer } from "@/design/Answer/Answer";
import { Badge } from "@/design/Badge/Badge";
import { Page } from "@/design/Page/Page";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { type Tab, Tabs } from "@/design/Tabs/Tabs";
import { Time } from "@/design/Time/Time";
import { plural } from "@/format/number";
import { CodeTab } from "./code/CodeTab";
import { DefinitionGraph } from "./DefinitionGraph";
import { GridTab } from "./grid/GridTab";
import { RunsTab } from "./RunsTab";
import { ScheduleTab } from "./ScheduleTab";
import { TriggersTab } from "./TriggersTab";
import { WorkflowActions } from "./WorkflowActions";

type Workflow = Schema<"WorkflowDetails">;

/** One workflow: its runs against its tasks, its structure, schedule, code and versions. */
export function WorkflowPage() {
  const { name } = useParams({ strict: false }) as { name: string };
  const [tab] = useSearchParam("tab", "grid");
  const query = api.useQuery("get", "/api/v1/workflows/{name}", { params: { path: { name } } });
  const workflow = query.data;
  return (
    <Page
      title={name}
      mark={workflow && <Marks workflow={workflow} />}
      subtitle={workflow && <Subtitle workflow={workflow} />}
      actions={workflow && <WorkflowActions workflow={workflow} />}
    >
      <Answer query={query}>
        {(workflow) => (
          <>
            <About owner={workflow.owner} description={workflow.description} />
            <Handlers workflow={workflow} />
            <Tabs tabs={tabsOf(workflow)} current={tab} />
            <WorkflowTab tab={tab} workflow={workflow} />
          </>
        )}
      </Answer>
    </Page>
  );
}

function Marks({ workflow }: { workflow: Workflow }) {
  return (
    <>
      {workflow.paused && <StateBadge state="paused" />}
      {!workflow.loaded && <Badge tone="amber">not loaded</Badge>}
      {workflow.tags.map((tag) => (
        <Badge key={tag}>{tag}</Badge>
      ))}
    </>
  );
}

function Subtitle({ workflow }: { workflow: Workflow }) {
  const next = workflow.schedule?.next[0];
  return (
    <>
      {plural(workflow.tasks.length, "task")} · {plural(workflow.active_runs, "active run")}
      {workflow.schedule && ` · ${workflow.schedule.rule}`}
      {next && !workflow.paused && (
        <>
          , next <Time at={next} isRelative />
        </>
      )}
    </>
  );
}

/** Links to the workflows of its handlers; from those, to the workflow that they belong to. */
function Handlers({ workflow: { handlers = [], handles } }: { workflow: Workflow }) {
  const others = handles ? [handles] : handlers;
  if (others.length === 0) return null;
  return (
    <p>
      {handles ? "Handlers of " : "Handlers: "}
      {others.map((name, index) => (
        <Fragment key={name}>
          {index > 0 && ", "}
          <Link to="/workflows/$name" params={{ name }}>
            {name}
          </Link>
        </Fragment>
      ))}
    </p>
  );
}

function tabsOf({ triggers, versions }: Workflow): Tab[] {
  return [
    { id: "grid", label: "Grid" },
    { id: "graph", label: "Graph" },
    { id: "runs", label: "Runs" },
    { id: "schedule", label: "Schedule" },
    { id: "triggers", label: "Triggers", count: triggers.length },
    { id: "code", label: "Code", count: versions.length },
  ];
}

function WorkflowTab({ tab, workflow }: { tab: string; workflow: Workflow }) {
  switch (tab) {
    case "graph":
      return <DefinitionGraph workflow={workflow} />;
    case "runs":
      return <RunsTab name={workflow.name} />;
    case "schedule":
      return <ScheduleTab workflow={workflow} />;
    case "triggers":
      return <TriggersTab triggers={workflow.triggers} />;
    case "code":
      return <CodeTab workflow={workflow} />;
    default:
      return <GridTab name={workflow.name} />;
  }
}
