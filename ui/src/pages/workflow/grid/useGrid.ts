import { useMemo } from "react";
import { api } from "@/api/client";
import { itemsOf, PAGED, useMore } from "@/api/paging";
import type { Schema } from "@/api/types";
import { inLogicalOrder } from "./geometry";

export type GridRun = Schema<"GridRun">;
export type GridCell = Schema<"GridCell">;

/** The runs of a workflow with the states of their tasks, newest first, read as far as they are looked at. */
export function useGrid(name: string) {
  const query = api.useInfiniteQuery(
    "get",
    "/api/v1/workflows/{name}/grid",
    { params: { path: { name }, query: { limit: 100 } } },
    PAGED,
  );
  const { data } = query;
  const runs = useMemo(() => inLogicalOrder(itemsOf(data)), [data]);
  const tasks = useMemo(() => taskNames(data?.pages ?? []), [data]);
  return { query, runs, tasks, loadMore: useMore(query) };
}

/** The rows: tasks of the current version, then those that only older runs have. */
function taskNames(pages: Schema<"Grid">[]): string[] {
  return [...new Set(pages.flatMap((page) => page.tasks.map((task) => task.name)))];
}
