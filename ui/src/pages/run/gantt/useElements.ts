import { useCallback, useMemo } from "react";
import { api } from "@/api/client";
import { itemsOf, PAGED } from "@/api/paging";
import type { Task } from "../useRunTasks";

const NONE: Task[] = [];

/** The elements of the mapped task that is open, read as far as they are looked at. */
export function useElements(run: string, task: string): { items: Task[]; loadMore: () => void } {
  const { data, hasNextPage, isFetchingNextPage, fetchNextPage } = api.useInfiniteQuery(
    "get",
    "/api/v1/runs/{run}/tasks",
    { params: { path: { run }, query: { task, limit: 200 } } },
    { ...PAGED, enabled: task !== "" },
  );
  const items = useMemo(() => (task === "" ? NONE : itemsOf(data)), [task, data]);
  const loadMore = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  return { items, loadMore };
}
