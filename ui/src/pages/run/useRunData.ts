import { useMemo } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import type { GraphEdge } from "@/design/GraphView/GraphView";
import { hasEnded } from "./state";
import { edgesOf } from "./structure";
import type { Why } from "./TaskTable";
import { type Task, useRunTasks } from "./useRunTasks";

export interface RunData {
  id: string;
  run: Schema<"RunDetails"> | undefined;
  tasks: Task[];
  query: ReturnType<typeof useRunTasks>["query"];
  /** The edges of the version that the run is pinned to. */
  edges: GraphEdge[];
  /** The tasks of that version, as they are declared. */
  declared: Schema<"TaskDetails">[];
  /** Why each waiting task waits. */
  why: Why;
  /** What its ends have called. */
  handlers: Schema<"HandlerRun">[];
}

/** Everything that the views of a run share. */
export function useRunData(id: string, run: Schema<"RunDetails"> | undefined): RunData {
  const { query, tasks } = useRunTasks(id);
  const version = api.useQuery(
    "get",
    "/api/v1/workflows/{name}/versions/{version}",
    { params: { path: { name: run?.workflow ?? "", version: run?.version ?? "" } } },
    { enabled: run !== undefined, staleTime: Number.POSITIVE_INFINITY },
  );
  const spec = version.data?.spec;
  const names = tasks.map((task) => task.task).join("\n");
  const edges = useMemo(() => {
    const known = new Set(names.split("\n"));
    return edgesOf(spec ?? {}).filter(({ source, target }) => known.has(source) && known.has(target));
  }, [spec, names]);
  const { data: waiting } = api.useQuery(
    "get",
    "/api/v1/runs/{run}/why",
    { params: { path: { run: id } } },
    { enabled: run !== undefined && !hasEnded(run.state) },
  );
  const { data: called } = api.useQuery(
    "get",
    "/api/v1/runs/{run}/handlers",
    { params: { path: { run: id } } },
    { enabled: spec?.handlers !== undefined },
  );
  return {
    id,
    run,
    tasks,
    query,
    edges,
    declared: version.data?.tasks ?? [],
    why: waiting?.reasons ?? {},
    handlers: called?.items ?? [],
  };
}
