import { Link } from "@tanstack/react-router";
import { api } from "@/api/client";
import { itemsOf, PAGED, useMore } from "@/api/paging";
import type { Schema } from "@/api/types";
import { useMayWrite } from "@/app/useMe";
import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { Time } from "@/design/Time/Time";
import { type VirtualColumn, VirtualTable } from "@/design/VirtualTable/VirtualTable";
import { plural } from "@/format/number";
import styles from "./BackfillsPage.module.css";
import { CancelBackfill } from "./CancelBackfill";
import { NewBackfill } from "./NewBackfill";
import { Progress } from "./Progress";

type Backfill = Schema<"BackfillInfo">;

/** Backfills, newest first, with the states of their runs. */
export function BackfillsPage() {
  const mayWrite = useMayWrite();
  const query = api.useInfiniteQuery("get", "/api/v1/backfills", { params: { query: { limit: 100 } } }, PAGED);
  const more = useMore(query);
  return (
    <Page title="Backfills" actions={mayWrite && <NewBackfill />} isFull>
      <Panel
        title="All backfills"
        aside={query.data && plural(query.data.pages[0]?.total ?? 0, "backfill")}
        isFlush
        className={styles.panel}
      >
        <Answer query={query}>
          {(data) =>
            data.pages[0]?.total === 0 ? (
              <NoBackfills />
            ) : (
              <VirtualTable
                label="Backfills"
                columns={mayWrite ? [...COLUMNS, CANCEL] : COLUMNS}
                rows={itemsOf(data)}
                rowKey={keyOf}
                rowHeight={40}
                onEnd={more}
              />
            )
          }
        </Answer>
      </Panel>
    </Page>
  );
}

const keyOf = (backfill: Backfill): string => backfill.id;

const COLUMNS: VirtualColumn<Backfill>[] = [
  {
    header: "Workflow",
    width: "minmax(100px, 1fr)",
    cell: ({ workflow }) => (
      <Link to="/workflows/$name" params={{ name: workflow }}>
        {workflow}
      </Link>
    ),
  },
  { header: "State", width: "110px", cell: ({ state }) => <StateBadge state={state} /> },
  { header: "Progress", width: "minmax(120px, 2fr)", cell: (backfill) => <Progress runs={backfill.runs} /> },
  { header: "From", width: "130px", isSecondary: true, cell: ({ from }) => from && <Time at={from} /> },
  { header: "To", width: "130px", isSecondary: true, cell: ({ to }) => to && <Time at={to} /> },
  { header: "At a time", width: "80px", align: "right", isSecondary: true, cell: ({ limit }) => limit },
  {
    header: "Created",
    width: "110px",
    isSecondary: true,
    cell: ({ created_at }) => <Time at={created_at} isRelative />,
  },
];

const CANCEL: VirtualColumn<Backfill> = {
  header: "",
  width: "100px",
  align: "right",
  cell: (backfill) => backfill.state === "running" && <CancelBackfill backfill={backfill} />,
};

function NoBackfills() {
  return (
    <EmptyState
      title="There is no backfill."
      commands={[`tidemill --server ${location.origin} backfill start WORKFLOW --from 2026-01-01 --to 2026-01-31`]}
    >
      A backfill starts a run for every past slot of a schedule that has had none. Choose a workflow above, or use this
      command.
    </EmptyState>
  );
}
