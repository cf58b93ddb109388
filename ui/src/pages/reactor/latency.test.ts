import { expect, test } from "vitest";
import type { Firing } from "./firings";
import { addToHistory, courseOf, latencyTone, percentilesOf } from "./latency";

const firing = (at: string, duration: number) => ({ at: `2026-01-05T10:00:${at}Z`, duration }) as Firing;

test("percentiles are those of the sorted durations", () => {
  const durations = Array.from({ length: 100 }, (_, index) => 100 - index);
  expect(percentilesOf(durations)).toEqual({ p50: 51, p99: 100 });
  expect(percentilesOf([])).toBeNull();
});

test("the course has a point every five seconds, and null where nothing fired", () => {
  const history = addToHistory(addToHistory(new Map(), [firing("00", 1)]), [firing("04", 3), firing("12", 5)]);
  const { times, p99 } = courseOf(history);
  const end = times.at(-1) ?? 0;
  expect(times.slice(-3).map((time) => time - end)).toEqual([-10, -5, 0]);
  expect(p99.slice(-3)).toEqual([3, null, 5]);
  expect(end - (times[0] ?? 0)).toBe(120);
});

test("an empty history has no points", () => {
  expect(courseOf(new Map()).times).toEqual([]);
});

test("only slow firings are tinted", () => {
  expect([latencyTone(99e-6), latencyTone(100e-6), latencyTone(2e-3)]).toEqual([undefined, "amber", "red"]);
});
