import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { client } from "@/api/client";
import { messageOf } from "@/api/problem";
import type { Schema } from "@/api/types";
import { Answer } from "@/design/Answer/Answer";
import { Button } from "@/design/Button/Button";
import { Dialog } from "@/design/Dialog/Dialog";
import type { GraphEdge } from "@/design/GraphView/GraphView";
import { useToast } from "@/design/Toasts/Toasts";
import { plural } from "@/format/number";
import styles from "./RerunDialog.module.css";
import { RerunPreview } from "./RerunPreview";
import { TaskChoice } from "./TaskChoice";

type Rerun = Schema<"Rerun">;

interface Props {
  run: string;
  /** `null` reruns what failed; otherwise these tasks are cleared, with all tasks after them. */
  from: string[] | null;
  onFrom: (from: string[]) => void;
  tasks: string[];
  edges: GraphEdge[];
  /** Whether a newer version of the workflow is loaded. */
  hasNewerVersion: boolean;
  onClose: () => void;
}

/** Retries a run or clears tasks of it, after it has shown what reruns and which results are reused. */
export function RerunDialog({ run, from, onFrom, tasks, edges, hasNewerVersion, onClose }: Props) {
  const [isLatest, setLatest] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const queries = useQueryClient();
  const announce = useToast();
  const isRetry = from === null;
  const isReady = from === null || from.length > 0;
  const preview = useQuery({
    queryKey: ["rerun", run, from, isLatest],
    queryFn: () => rerun(run, from, isLatest, true),
    enabled: isReady,
    staleTime: 0,
    placeholderData: (previous) => previous,
  });
  const count = preview.data?.reruns.length ?? 0;
  const start = async () => {
    setBusy(true);
    try {
      const done = await rerun(run, from, isLatest, false);
      announce(`${plural(done.reruns.length, "task reruns", "tasks rerun")}.`);
      await queries.invalidateQueries({ predicate: ({ queryKey }) => String(queryKey[1]).startsWith("/api/v1/runs") });
      onClose();
    } catch (error) {
      announce(messageOf(error), "error");
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={isRetry ? "Retry this run" : "Clear tasks and rerun"}
      isWide
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            look="primary"
            isBusy={isBusy}
            disabled={!isReady || count === 0 || preview.isFetching}
            onClick={() => void start()}
          >
            {isReady && count > 0 ? `Rerun ${plural(count, "task")}` : "Rerun"}
          </Button>
        </>
      }
    >
      {from !== null && <TaskChoice tasks={tasks} chosen={from} onChange={onFrom} />}
      {hasNewerVersion && (
        <label className={styles.option}>
          <input type="checkbox" checked={isLatest} onChange={() => setLatest(!isLatest)} />
          Continue with the newest version of the workflow
        </label>
      )}
      {isReady ? (
        <Answer query={preview}>{(rerun) => <RerunPreview rerun={rerun} edges={edges} />}</Answer>
      ) : (
        <p className={styles.hint}>Choose the tasks to clear. All tasks after them rerun too.</p>
      )}
    </Dialog>
  );
}

async function rerun(run: string, tasks: string[] | null, latest: boolean, preview: boolean): Promise<Rerun> {
  const params = { path: { run } };
  const { data } =
    tasks === null
      ? await client.POST("/api/v1/runs/{run}/retry", { params, body: { from: null, latest, preview } })
      : await client.POST("/api/v1/runs/{run}/clear", { params, body: { tasks, latest, preview } });
  return data as Rerun;
}
