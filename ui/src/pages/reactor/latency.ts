/** Latencies of firings: percentiles, and their course over the last minutes. */

import type { Tone } from "@/design/tone";
import type { Firing } from "./firings";

/** Seconds of one point of the plot. */
const BUCKET = 5;
/** Points that are kept: a quarter of an hour. */
const BUCKETS = 180;
/** Seconds that a plot covers at least, so that its first points are not stretched over all of it. */
const SHORTEST = 120;

export interface Percentiles {
  p50: number;
  p99: number;
}

export function percentilesOf(durations: number[]): Percentiles | null {
  if (durations.length === 0) return null;
  const sorted = [...durations].sort((one, other) => one - other);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
  return { p50: at(0.5), p99: at(0.99) };
}

/** From here on a p99 is shown amber, and red: firings of a healthy graph take microseconds. */
export const SLOW = 100e-6;
export const VERY_SLOW = 1e-3;

export function latencyTone(p99: number | undefined): Tone | undefined {
  if (p99 === undefined || p99 < SLOW) return undefined;
  return p99 < VERY_SLOW ? "amber" : "red";
}

/** The durations of firings, by seconds since the epoch in steps of five. */
export type LatencyHistory = ReadonlyMap<number, number[]>;

export function addToHistory(history: LatencyHistory, firings: Firing[]): LatencyHistory {
  if (firings.length === 0) return history;
  const next = new Map(history);
  for (const { at, duration } of firings) {
    const bucket = Math.floor(Date.parse(at) / 1000 / BUCKET) * BUCKET;
    next.set(bucket, [...(next.get(bucket) ?? []), duration]);
  }
  const oldest = Math.max(...next.keys()) - BUCKETS * BUCKET;
  for (const bucket of next.keys()) if (bucket < oldest) next.delete(bucket);
  return next;
}

export interface LatencyCourse {
  times: number[];
  p50: (number | null)[];
  p99: (number | null)[];
}

/** One point per step, `null` where nothing fired. */
export function courseOf(history: LatencyHistory): LatencyCourse {
  const course: LatencyCourse = { times: [], p50: [], p99: [] };
  if (history.size === 0) return course;
  const newest = Math.max(...history.keys());
  const oldest = Math.min(...history.keys(), newest - SHORTEST);
  for (let time = oldest; time <= newest; time += BUCKET) {
    const found = percentilesOf(history.get(time) ?? []);
    course.times.push(time);
    course.p50.push(found?.p50 ?? null);
    course.p99.push(found?.p99 ?? null);
  }
  return course;
}
