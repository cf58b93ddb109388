import { expect, test } from "vitest";
import type { Firing } from "./firings";
import { addToHistory, courseOf, latencyTone, percentilesOf, recentPercentiles } from "./latency";

const firing = (at: string, duration: number) => ({ at: `2026-01-05T10:00:${at}Z`, duration }) as Firing;

test("percentiles are those of the sorted durations", () => {
  const durations = Array.from({ length: 100 }, (_, index) => 100 - index);
  expect(percentilesOf(durations)).toEqual({ p50: 51, p99: 100 });
  expect(percentilesOf([])).toBeNull();
});

test("the course has a point every five seconds, and null where nothing fired", () => {
  const history = addToHistory(addToHistory(new Map(), [firing("00", 1)]), [firing("04", 3), firing("12", 5)]);
  const { times, p99 } = courseOf(history);
  expect(times.map((time) => time - (times[0] ?? 0))).toEqual([0, 5, 10]);
  expect(p99).toEqual([3, null, 5]);
  expect(recentPercentiles(history)?.p50).toBe(3);
});

test("an empty history has no points", () => {
  expect(courseOf(new Map()).times).toEqual([]);
});

test("only slow firings are tinted", () => {
  expect([latencyTone(99e-6), latencyTone(100e-6), latencyTone(2e-3)]).toEqual([undefined, "amber", "red"]);
});
