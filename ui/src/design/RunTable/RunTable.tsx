import { Link, useNavigate } from "@tanstack/react-router";
import { useCallback } from "react";
import type { Schema } from "@/api/types";
import { useListNavigation } from "@/keyboard/useListNavigation";
import { Elapsed } from "../Elapsed/Elapsed";
import { RunId } from "../RunId/RunId";
import { StateBadge } from "../StateBadge/StateBadge";
import { Time } from "../Time/Time";
import { type VirtualColumn, VirtualTable } from "../VirtualTable/VirtualTable";

type Run = Schema<"RunInfo">;

interface Props {
  runs: Run[];
  total: number;
  onEnd: () => void;
  /** Leave out the column that is the same in all rows of a workflow's page. */
  isOfOneWorkflow?: boolean;
}

/** A list of runs of any length; `j`, `k` and Enter work on it. */
export function RunTable({ runs, total, onEnd, isOfOneWorkflow = false }: Props) {
  const navigate = useNavigate();
  const open = useCallback(
    (index: number) => void navigate({ to: "/runs/$run", params: { run: runs[index]?.id ?? "" } }),
    [navigate, runs],
  );
  const selected = useListNavigation(runs.length, open);
  return (
    <VirtualTable
      label="Runs"
      columns={isOfOneWorkflow ? OF_ONE_WORKFLOW : COLUMNS}
      rows={runs}
      rowKey={keyOf}
      selected={selected}
      total={total}
      onEnd={onEnd}
    />
  );
}

const keyOf = (run: Run): string => run.id;

const COLUMNS: VirtualColumn<Run>[] = [
  { header: "State", width: "96px", cell: ({ state }) => <StateBadge state={state} /> },
  {
    header: "Run",
    width: "92px",
    cell: ({ id }) => (
      <Link to="/runs/$run" params={{ run: id }} data-stretch>
        <RunId id={id} />
      </Link>
    ),
  },
  { header: "Workflow", width: "minmax(96px, 1fr)", cell: ({ workflow }) => workflow },
  { header: "Started by", width: "minmax(130px, 1.4fr)", isSecondary: true, cell: (run) => <StartedBy run={run} /> },
  { header: "Created", width: "124px", isSecondary: true, cell: ({ created_at }) => <Time at={created_at} /> },
  {
    header: "Age",
    width: "108px",
    align: "right",
    isSecondary: true,
    cell: ({ created_at }) => <Time at={created_at} isRelative />,
  },
  {
    header: "Took",
    width: "76px",
    align: "right",
    cell: ({ started_at, ended_at }) => <Elapsed from={started_at} to={ended_at} />,
  },
  {
    header: "Note or reason",
    width: "minmax(140px, 4fr)",
    isSecondary: true,
    cell: (run) => <NoteOrReason run={run} />,
  },
];

const OF_ONE_WORKFLOW = COLUMNS.filter(({ header }) => header !== "Workflow");

/** A failure comes before a note, which says why the run was started; the tooltip has both. */
function NoteOrReason({ run: { state, note, reason } }: { run: Run }) {
  const texts = [note, reason].filter(Boolean);
  return <span title={texts.join("\n")}>{state === "failed" ? texts.at(-1) : texts[0]}</span>;
}

function StartedBy({ run: { origin, cause, slot } }: { run: Run }) {
  const what = cause ? `${origin} ${cause}` : origin;
  if (slot === null) return <span title={what}>{what}</span>;
  return (
    <>
      {what} · <Time at={slot} />
    </>
  );
}
