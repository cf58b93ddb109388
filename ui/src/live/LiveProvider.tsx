import { useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useState, useSyncExternalStore } from "react";
import { api } from "@/api/client";
import { useNow } from "@/format/useNow";
import { currentRate, SPAN, type Values } from "./counterHistory";
import { Feed, type FeedEvent } from "./feed";
import { refreshFrom } from "./refresh";
import type { ConnectionState } from "./socket";

const FeedContext = createContext<Feed | null>(null);

/** Connects the event feed, and keeps every answer on the page up to date with it. */
export function LiveProvider({ children }: { children: ReactNode }) {
  const queries = useQueryClient();
  const [feed] = useState(() => new Feed());

  useEffect(() => {
    feed.start();
    const stopRefreshing = refreshFrom(feed, queries);
    return () => {
      stopRefreshing();
      feed.stop();
    };
  }, [feed, queries]);

  // What changed before there was a connection has left no event here: read everything on the page again.
  const state = useSyncExternalStore(feed.subscribeState, feed.getState);
  useEffect(() => {
    if (state === "live") void queries.invalidateQueries();
  }, [state, queries]);

  return <FeedContext value={feed}>{children}</FeedContext>;
}

function useFeed(): Feed {
  const feed = useContext(FeedContext);
  if (feed === null) throw new Error("LiveProvider is missing above this component");
  return feed;
}

export function useConnection(): { state: ConnectionState; retryNow: () => void } {
  const feed = useFeed();
  const state = useSyncExternalStore(feed.subscribeState, feed.getState);
  return { state, retryNow: feed.retryNow };
}

/** Calls `listener` with every event of the feed, until the component goes. */
export function useFeedEvents(listener: (event: FeedEvent) => void): void {
  const feed = useFeed();
  useEffect(() => feed.subscribe(listener), [feed, listener]);
}

export interface Firings {
  /** In each of the last 60 seconds, oldest first; null where not known. */
  history: Values;
  /** Per second, now; null while it is not known. */
  rate: number | null;
  /** Since the reactor was loaded; null until the feed has said it. */
  total: number | null;
}

/** How often a reactor fires; it moves every second. */
export function useFirings(reactor: string): Firings {
  const { rates } = useFeed();
  useFilledRates();
  const history = rates.history(reactor, useNow());
  return { history, rate: currentRate(history), total: rates.total(reactor) };
}

/** Asks the server for the minute before the page was opened, or before the connection came back. */
function useFilledRates(): void {
  const { rates } = useFeed();
  const { data } = api.useQuery("get", "/api/v1/series/firings", { params: { query: { seconds: SPAN } } });
  useEffect(() => {
    if (data !== undefined) rates.fill(data.values, new Date());
  }, [data, rates]);
}

/** The newest events of the feed that people want to read, newest first. */
export function useRecentEvents(): readonly FeedEvent[] {
  const { recent } = useFeed();
  return useSyncExternalStore(recent.subscribe, recent.getEvents);
}
