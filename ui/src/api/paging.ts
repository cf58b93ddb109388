/** Lists with cursors, for `api.useInfiniteQuery`: `api.useInfiniteQuery("get", path, init, PAGED)`. */

import { useCallback, useEffect } from "react";

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

/** Reads the next page, for lists that are read as far as they are looked at; it waits for a request in progress. */
export function useMore(query: PagedQuery): () => void {
  const { hasNextPage, isFetching, isError, fetchNextPage } = query;
  return useCallback(() => {
    if (hasNextPage && !isFetching && !isError) fetchNextPage();
  }, [hasNextPage, isFetching, isError, fetchNextPage]);
}
