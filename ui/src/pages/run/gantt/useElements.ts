import { useMemo } from "react";
import { api } from "@/api/client";
import { itemsOf, PAGED, useMore } from "@/api/paging";
import type { Task } from "../useRunTasks";

const NONE: Task[] = [];

/** The elements of the mapped task that is open, read as far as they are looked at. */
export function useElements(run: string, task: string): { items: Task[]; loadMore: () => void } {
  const query = api.useInfiniteQuery(
    "get",
    "/api/v1/runs/{run}/tasks",
    { params: { path: { run }, query: { task, limit: 200 } } },
    { ...PAGED, enabled: task !== "" },
  );
  const { data } = query;
  const items = useMemo(() => (task === "" ? NONE : itemsOf(data)), [task, data]);
  return { items, loadMore: useMore(query) };
}
