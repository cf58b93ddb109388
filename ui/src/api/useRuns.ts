import { useMemo } from "react";
import { api } from "./client";
import { itemsOf, PAGED, useMore } from "./paging";
import type { RunState } from "./types";

export interface RunFilter {
  workflow?: string;
  state?: RunState[];
  from?: string;
  to?: string;
  q?: string;
  cause?: string;
  unresolved?: boolean;
}

/** Runs, newest first, read as far as they are looked at. */
export function useRuns(filter: RunFilter) {
  const query = api.useInfiniteQuery(
    "get",
    "/api/v1/runs",
    { params: { query: { ...filter, limit: 100 } } },
    { ...PAGED, placeholderData: (previous) => previous },
  );
  const { data } = query;
  const runs = useMemo(() => itemsOf(data), [data]);
  return { query, runs, total: data?.pages[0]?.total ?? 0, loadMore: useMore(query) };
}
