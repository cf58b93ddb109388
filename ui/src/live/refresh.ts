/** Keeps the cache of answers up to date: marks what events make outdated, and reads it again at a bounded rate. */

import type { QueryClient } from "@tanstack/react-query";
import type { Feed, FeedEvent } from "./feed";
import { concerns, type Outdated, outdatedBy } from "./outdated";

/** At most this often, however many events arrive. */
const INTERVAL = 400;

export function refreshFrom(feed: Feed, queries: QueryClient): () => void {
  const pending = new Map<string, Outdated>();
  let timer: ReturnType<typeof setTimeout> | null = null;

  const flush = () => {
    timer = null;
    const entries = [...pending.values()];
    pending.clear();
    void queries.invalidateQueries(
      { predicate: (query) => entries.some((entry) => concerns(entry, query.queryKey)) },
      // A request in progress goes on: under a flood of events, a new one each time would never end.
      { cancelRefetch: false },
    );
  };

  const note = (event: FeedEvent) => {
    for (const entry of outdatedBy(event)) pending.set(JSON.stringify(entry), entry);
    if (timer === null && pending.size > 0) timer = setTimeout(flush, INTERVAL);
  };

  const unsubscribe = feed.subscribe(note);
  return () => {
    unsubscribe();
    if (timer !== null) clearTimeout(timer);
  };
}
