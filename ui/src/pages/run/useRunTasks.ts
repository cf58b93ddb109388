import { api } from "@/api/client";
import { itemsOf, PAGED, useEveryPage } from "@/api/paging";
import type { Schema } from "@/api/types";

export type Task = Schema<"TaskInfo">;

/** All tasks of a run, in topological order; a mapped task is one of them. */
export function useRunTasks(run: string) {
  const query = api.useInfiniteQuery(
    "get",
    "/api/v1/runs/{run}/tasks",
    { params: { path: { run }, query: { limit: 500 } } },
    PAGED,
  );
  useEveryPage(query);
  return { query, tasks: itemsOf(query.data) };
}
