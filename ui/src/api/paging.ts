/** Lists with cursors, for `api.useInfiniteQuery`: `api.useInfiniteQuery("get", path, init, PAGED)`. */

import { useEffect } from "react";

export const PAGED = {
  pageParamName: "cursor",
  initialPageParam: null as string | null,
  getNextPageParam: (last: { next: string | null }) => last.next ?? undefined,
};

/** The items of all pages that were read so far. */
export function itemsOf<Item>(data: { pages: { items: Item[] }[] } | undefined): Item[] {
  return data?.pages.flatMap((page) => page.items) ?? [];
}

interface PagedQuery {
  hasNextPage: boolean;
  isFetching: boolean;
  isError: boolean;
  fetchNextPage: () => unknown;
}

/** Reads page after page until the list is whole. */
export function useEveryPage(query: PagedQuery): void {
  const { hasNextPage, isFetching, isError, fetchNextPage } = query;
  useEffect(() => {
    if (hasNextPage && !isFetching && !isError) fetchNextPage();
  }, [hasNextPage, isFetching, isError, fetchNextPage]);
}
