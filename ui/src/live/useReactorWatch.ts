import { useCallback, useEffect, useMemo, useSyncExternalStore } from "react";
import type { FeedEvent } from "./feed";
import { useConnection, useFeedEvents } from "./LiveProvider";
import { ReactorWatch, type Watched } from "./reactorWatch";

/** Follows a reactor as long as the component is there. */
export function useReactorWatch(name: string): Watched & { retryNow: () => void } {
  const watch = useMemo(() => new ReactorWatch(name), [name]);
  useEffect(() => {
    watch.start();
    return () => watch.stop();
  }, [watch]);
  const onEvent = useCallback(
    (event: FeedEvent) => {
      if (event.type === "reactor.loaded" && event.reactor === name) watch.restart();
    },
    [watch, name],
  );
  useFeedEvents(onEvent);
  // What was loaded before there was a feed has left no event here.
  const { state: feed } = useConnection();
  useEffect(() => {
    if (feed === "live") watch.restart();
  }, [watch, feed]);
  const watched = useSyncExternalStore(watch.subscribe, watch.getWatched);
  return { ...watched, retryNow: watch.retryNow };
}
