/** Everything that the page of a reactor shows live, in one value. */

import { useCallback, useEffect, useRef, useState } from "react";
import { client } from "@/api/client";
import type { Schema } from "@/api/types";
import type { ConnectionState } from "@/live/socket";
import { useReactorWatch } from "@/live/useReactorWatch";
import { type Firing, mergeFirings, unseenBetween } from "./firings";
import { addToHistory, type LatencyHistory } from "./latency";
import { firstReading, nextReading, type RateReading } from "./rates";

export type ReactorState = Schema<"ReactorState">;

export interface LiveReactor {
  state: ReactorState;
  connection: ConnectionState;
  /** Why there is no connection. */
  reason: string | null;
  retryNow: () => void;
  /** Per second: `fires`, and the boundaries of each accumulator by its name. */
  rates: { fires: number; emitted: Record<string, number> };
  /** Newest first; if the reactor fires often, some of them. */
  firings: Firing[];
  latencies: LatencyHistory;
  /** Adds the firing of a command, which may be forgotten before the next reading. */
  addFiring: (firing: Firing) => void;
}

/** `null` until the first state has come; `known` is the answer of a request that may come before the socket's. */
export function useLiveReactor(name: string, known: ReactorState | undefined): LiveReactor | null {
  const { state: watched, lastFiring, connection, reason, retryNow } = useReactorWatch(name);
  const state = watched ?? known ?? null;
  const rates = useRates(watched);
  const { firings, latencies, addFiring } = useFirings(name, state?.fires, lastFiring, connection);
  if (state === null) return null;
  return { state, connection, reason, retryNow, rates, firings, latencies, addFiring };
}

const FIRES = "@fires";
const SECOND = 1000;

/** Reads the counters with each state, and once a second while nothing changes, so that rates decay. */
function useRates(state: ReactorState | null): LiveReactor["rates"] {
  const [reading, setReading] = useState<RateReading | null>(null);
  const latest = useRef<ReactorState | null>(null);
  const read = useCallback(() => {
    const current = latest.current;
    if (current === null) return;
    const counters = countersOf(current);
    const now = performance.now() / SECOND;
    setReading((before) => (before === null ? firstReading(counters, now) : nextReading(before, counters, now)));
  }, []);
  useEffect(() => {
    latest.current = state;
    read();
    const timer = setInterval(read, SECOND);
    return () => clearInterval(timer);
  }, [state, read]);
  const { [FIRES]: fires = 0, ...emitted } = reading?.rates ?? {};
  return { fires, emitted };
}

function countersOf(state: ReactorState): Record<string, number> {
  const emitted = Object.values(state.accumulators).map((one) => [one.name, one.emitted] as const);
  return { [FIRES]: state.fires, ...Object.fromEntries(emitted) };
}

/** Firings of the first reading, and of those that follow: enough to show a route, without work for the server. */
const FIRST = 100;
const FOLLOWING = 25;

/** Reads the newest firings when the reactor has fired, once a second at most. */
function useFirings(name: string, fires: number | undefined, last: Firing | null, connection: ConnectionState) {
  const [seen, setSeen] = useState<Seen>(NOTHING_SEEN);
  const isReading = useRef(false);
  const isOutdated = useRef(false);
  const hasRead = useRef(false);
  const readAt = useRef(Number.NEGATIVE_INFINITY);
  const [repeats, setRepeats] = useState(0);

  const add = useCallback((read: Firing[]) => {
    setSeen((before) => withFirings(before, read));
  }, []);
  const read = useCallback(async () => {
    if (isReading.current) {
      isOutdated.current = true;
      return;
    }
    isReading.current = true;
    isOutdated.current = false;
    readAt.current = performance.now();
    const items = await newestFirings(name, hasRead.current ? FOLLOWING : FIRST);
    if (items !== null) {
      hasRead.current = true;
      add(items);
    }
    isReading.current = false;
    if (items === null || isOutdated.current) setRepeats((before) => before + 1);
  }, [name, add]);

  // `repeats` reads again what failed, or was answered before the last firing.
  // biome-ignore lint/correctness/useExhaustiveDependencies: `fires` and `repeats` only say when to read
  useEffect(() => {
    if (fires === undefined || connection !== "live") return;
    const timer = setTimeout(read, Math.max(0, readAt.current + SECOND - performance.now()));
    return () => clearTimeout(timer);
  }, [fires, repeats, connection, read]);

  useEffect(() => {
    if (last !== null) setSeen((before) => (follows(last, before.firings[0]) ? withFirings(before, [last]) : before));
  }, [last]);

  const addFiring = useCallback((firing: Firing) => add([firing]), [add]);
  return { ...seen, addFiring };
}

/** `null` if the server does not answer. */
async function newestFirings(name: string, limit: number): Promise<Firing[] | null> {
  try {
    const path = "/api/v1/reactors/{name}/firings";
    const { data } = await client.GET(path, { params: { path: { name }, query: { limit } } });
    return data?.items ?? null;
  } catch {
    return null;
  }
}

type Seen = Pick<LiveReactor, "firings" | "latencies">;

const NOTHING_SEEN: Seen = { firings: [], latencies: new Map() };

function withFirings(before: Seen, read: Firing[]): Seen {
  const firings = mergeFirings(before.firings, read);
  if (firings === before.firings) return before;
  const ids = new Set(before.firings.map(({ id }) => id));
  const added = read.filter(({ id }) => !ids.has(id));
  return { firings, latencies: addToHistory(before.latencies, added) };
}

/** Whether nothing is missing between two firings; otherwise nothing could tell what had changed. */
function follows(newer: Firing, older: Firing | undefined): boolean {
  return older !== undefined && newer.at > older.at && unseenBetween(newer, older) === 0;
}
