/** Keeps the cache of answers up to date: marks what events make outdated, and reads it again at a bounded rate. */

import type { Query, QueryClient } from "@tanstack/react-query";
import type { Feed } from "./feed";
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

  const add = (entry: Outdated) => {
    pending.set(JSON.stringify(entry), entry);
    schedule();
  };

  const schedule = () => {
    if (timer !== null || isReading || pending.size === 0) return;
    timer = setTimeout(() => void flush(), Math.max(INTERVAL, restUntil - performance.now()));
  };

  const flush = async () => {
    timer = null;
    isReading = true;
    const entries = [...pending.values()];
    pending.clear();
    // A request in progress may have been answered before the change, and goes on: under a flood of events, a new one
    // each time would never end. What it may miss is read once more after it.
    const busy = queries.getQueryCache().findAll({ fetchStatus: "fetching", type: "active" });
    for (const entry of entries) if (busy.some(isAbout(entry))) add(entry);
    const started = performance.now();
    const read = queries.invalidateQueries(
      { predicate: (query) => entries.some((entry) => isAbout(entry)(query)) },
      { cancelRefetch: false },
    );
    await Promise.race([read, new Promise((resolve) => setTimeout(resolve, LONGEST))]);
    const now = performance.now();
    restUntil = now + REST * (now - started);
    isReading = false;
    schedule();
  };

  const unsubscribe = feed.subscribe((event) => outdatedBy(event).forEach(add));
  return () => {
    unsubscribe();
    pending.clear();
    if (timer !== null) clearTimeout(timer);
  };
}

function isAbout(entry: Outdated): (query: Query) => boolean {
  return ({ queryKey }) => concerns(entry, queryKey);
}
