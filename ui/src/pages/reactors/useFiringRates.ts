import { useCallback, useEffect, useRef, useState } from "react";
import type { FeedEvent } from "@/live/feed";
import { useFeedEvents } from "@/live/LiveProvider";
import { firstReading, nextReading, type RateReading } from "@/pages/reactor/rates";

const SECOND = 1000;

/** How often reactors fire, from the counts in the feed; read once a second, so that the figures can be read too. */
export function useFiringRates(): Pick<RateReading, "rates" | "counters"> {
  const counters = useRef<Record<string, number>>({});
  const [reading, setReading] = useState(() => firstReading({}, performance.now() / SECOND));
  const onEvent = useCallback((event: FeedEvent) => {
    if (event.type === "reactor.fired") counters.current[String(event.reactor)] = Number(event.total);
  }, []);
  useFeedEvents(onEvent);
  useEffect(() => {
    const read = () => {
      const now = performance.now() / SECOND;
      setReading((before) => nextReading(before, { ...counters.current }, now));
    };
    const timer = setInterval(read, SECOND);
    return () => clearInterval(timer);
  }, []);
  return reading;
}
