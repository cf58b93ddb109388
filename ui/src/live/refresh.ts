/** Keeps the cache of answers up to date: marks what events make outdated, and reads it again at a bounded rate. */

import type { QueryClient } from "@tanstack/react-query";
import type { Feed, FeedEvent } from "./feed";
import { concerns, type Outdated, outdatedBy } from "./outdated";

/** At most this often, however many events arrive. */
const INTERVAL = 400;
/** A server that takes a second to answer is asked again after three: it has work of its own. */
const REST = 3;
/** An answer that takes longer than this does not hold up the others. */
const LONGEST = 5000;

export function refreshFrom(feed: Pick<Feed, "subscribe">, queries: QueryClient): () => void {
  const pending = new Map<string, Outdated>();
  let timer: ReturnType<typeof setTimeout> | null = null;
  let isReading = false;
  let restUntil = 0;

  const schedule = () => {
    if (timer !== null || isReading || pending.size === 0) return;
    timer = setTimeout(() => void flush(), Math.max(INTERVAL, restUntil - performance.now()));
  };

  const flush = async () => {
    timer = null;
    isReading = true;
    const entries = [...pending.values()];
    pending.clear();
    const started = performance.now();
    const read = queries.invalidateQueries(
      { predicate: (query) => entries.some((entry) => concerns(entry, query.queryKey)) },
      // A request in progress goes on: under a flood of events, a new one each time would never end.
      { cancelRefetch: false },
    );
    await Promise.race([read, new Promise((resolve) => setTimeout(resolve, LONGEST))]);
    const now = performance.now();
    restUntil = now + REST * (now - started);
    isReading = false;
    schedule();
  };

  const note = (event: FeedEvent) => {
    for (const entry of outdatedBy(event)) pending.set(JSON.stringify(entry), entry);
    schedule();
  };

  const unsubscribe = feed.subscribe(note);
  return () => {
    unsubscribe();
    pending.clear();
    if (timer !== null) clearTimeout(timer);
  };
}
