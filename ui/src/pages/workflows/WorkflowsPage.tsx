import { Link, useNavigate } from "@tanstack/react-router";
import { useCallback } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
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
import { plural } from "@/format/number";
import { useListNavigation } from "@/keyboard/useListNavigation";

type Workflow = Schema<"WorkflowItem">;

export function WorkflowsPage() {
  const [text, setText] = useSearchParam("q", "");
  const workflows = api.useQuery("get", "/api/v1/workflows", { params: { query: { q: text, limit: 500 } } });
  return (
    <Page title="Workflows" actions={<SearchInput label="Search workflows" value={text} onChange={setText} />}>
      <Panel title="All workflows" aside={workflows.data && plural(workflows.data.total, "workflow")} isFlush>
        <Answer query={workflows}>
          {({ items }) =>
            items.length > 0 ? <WorkflowTable workflows={items} /> : <NoWorkflows isSearch={text !== ""} />
          }
        </Answer>
      </Panel>
    </Page>
  );
}

const COLUMNS: Column<Workflow>[] = [
  {
    header: "Workflow",
    cell: ({ name }) => (
      <Link to="/workflows/$name" params={{ name }}>
        {name}
      </Link>
    ),
  },
  { header: "Tags", isSecondary: true, cell: ({ tags }) => tags.map((tag) => <Badge key={tag}>{tag}</Badge>) },
  { header: "Active runs", align: "right", cell: ({ active_runs }) => active_runs },
  { header: "Last run", cell: ({ last_run }) => (last_run ? <StateBadge state={last_run.state} /> : "never") },
  {
    header: "When",
    isSecondary: true,
    cell: ({ last_run }) => last_run && <Time at={last_run.created_at} isRelative />,
  },
  {
    header: "Paused",
    isHeaderHidden: true,
    align: "right",
    cell: ({ paused }) => paused && <StateBadge state="paused" />,
  },
];

function WorkflowTable({ workflows }: { workflows: Workflow[] }) {
  const navigate = useNavigate();
  const open = useCallback(
    (index: number) => void navigate({ to: "/workflows/$name", params: { name: workflows[index]?.name ?? "" } }),
    [navigate, workflows],
  );
  const selected = useListNavigation(workflows.length, open);
  return <Table label="Workflows" columns={COLUMNS} rows={workflows} rowKey={({ name }) => name} selected={selected} />;
}

function NoWorkflows({ isSearch }: { isSearch: boolean }) {
  if (isSearch) return <EmptyState title="No workflow has this name." />;
  return (
    <EmptyState title="No workflow is loaded." commands={["tidemill package new hello", "tidemill dev hello"]}>
      A workflow is a Python file with functions as tasks. These commands write one and run it.
    </EmptyState>
  );
}
