/** Everything that the page of a reactor shows live, in one value. */

import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { api, client } from "@/api/client";
import type { Schema } from "@/api/types";
import { CounterHistory, currentRate, SPAN } from "@/live/counterHistory";
import type { ConnectionState } from "@/live/socket";
import { useReactorWatch } from "@/live/useReactorWatch";
import { type Firing, mergeFirings, unseenBetween } from "./firings";

export type ReactorState = Schema<"ReactorState">;

export interface LiveReactor {
  state: ReactorState;
  connection: ConnectionState;
  /** Why there is no connection. */
  reason: string | null;
  retryNow: () => void;
  /** Per second: `fires`, and the boundaries of each accumulator by its name. */
  rates: { fires: number | null; emitted: Record<string, number> };
  /** Newest first; if the reactor fires often, some of them. */
  firings: Firing[];
  /** Adds the firing of a command, which may be forgotten before the next reading. */
  addFiring: (firing: Firing) => void;
}

/** `null` until the first state has come; `known` is the answer of a request that may come before the socket's. */
export function useLiveReactor(name: string, known: ReactorState | undefined): LiveReactor | null {
  const { state: watched, lastFiring, connection, reason, retryNow } = useReactorWatch(name);
  const state = watched ?? known ?? null;
  const rates = useRates(name, watched, connection === "live");
  const { firings, addFiring } = useFirings(name, state?.fires, lastFiring, connection);
  if (state === null) return null;
  return { state, connection, reason, retryNow, rates, firings, addFiring };
}

const FIRES = "@fires";
const SECOND = 1000;

/** Reads the counters with each state, and once a second while nothing changes, but not without a connection. */
function useRates(name: string, state: ReactorState | null, isLive: boolean): LiveReactor["rates"] {
  // biome-ignore lint/correctness/useExhaustiveDependencies: each reactor has its own history
  const history = useMemo(() => new CounterHistory(), [name]);
  const [, setReadings] = useState(0);
  const { data } = api.useQuery("get", "/api/v1/reactors/{name}/series", {
    params: { path: { name }, query: { seconds: SPAN } },
  });
  useEffect(() => {
    if (data === undefined) return;
    const now = new Date();
    history.fill(FIRES, data.firings, now);
    for (const [one, values] of Object.entries(data.emitted)) history.fill(one, values, now);
    setReadings((before) => before + 1);
  }, [data, history]);
  useEffect(() => {
    if (state === null || !isLive) return;
    const read = () => {
      history.read(countersOf(state), new Date());
      setReadings((before) => before + 1);
    };
    read();
    const timer = setInterval(read, SECOND);
    return () => clearInterval(timer);
  }, [state, isLive, history]);
  const emitted = Object.keys(state?.accumulators ?? {}).map(
    (one) => [one, currentRate(history.history(one)) ?? 0] as const,
  );
  return { fires: currentRate(history.history(FIRES)), emitted: Object.fromEntries(emitted) };
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
  const [firings, setFirings] = useState<Firing[]>([]);
  const isReading = useRef(false);
  const isOutdated = useRef(false);
  const hasRead = useRef(false);
  const readAt = useRef(Number.NEGATIVE_INFINITY);
  const [repeats, setRepeats] = useState(0);

  const add = useCallback((read: Firing[]) => {
    setFirings((before) => mergeFirings(before, read));
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
    if (last !== null) setFirings((before) => (follows(last, before[0]) ? mergeFirings(before, [last]) : before));
  }, [last]);

  const addFiring = useCallback((firing: Firing) => add([firing]), [add]);
  return { firings, addFiring };
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

/** Whether nothing is missing between two firings; otherwise nothing could tell what had changed. */
function follows(newer: Firing, older: Firing | undefined): boolean {
  return older !== undefined && newer.at > older.at && unseenBetween(newer, older) === 0;
}
