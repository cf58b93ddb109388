import { expect, test } from "vitest";
import { formatDuration, formatElapsed } from "./duration";
import { formatBytes, formatRate, plural } from "./number";
import { formatRelative, formatTime } from "./time";

test.each([
  [0, "0 s"],
  [4.2e-7, "420 ns"],
  [1.718e-5, "17 µs"],
  [0.0032, "3.2 ms"],
  [4.14, "4.1 s"],
  [59.96, "60 s"],
  [125, "2m 05s"],
  [11_520, "3h 12m"],
  [352_800, "4d 2h"],
])("a duration of %d s reads %s", (seconds, text) => {
  expect(formatDuration(seconds)).toBe(text);
});

test("something that still grows has whole seconds", () => {
  expect(formatElapsed(4.97)).toBe("4 s");
  expect(formatElapsed(61.2)).toBe("1m 01s");
});

test("relative times say the direction", () => {
  const now = new Date("2026-01-05T10:00:00Z");
  expect(formatRelative("2026-01-05T10:03:20Z", now)).toBe("in 3m 20s");
  expect(formatRelative("2026-01-05T09:59:56Z", now)).toBe("4 s ago");
  expect(formatRelative("2026-01-05T10:00:00.400Z", now)).toBe("now");
  expect(formatRelative("2026-01-05T10:00:01.200Z", now)).toBe("now");
});

test("a time of another year says the year", () => {
  const now = new Date(2026, 5, 1, 12);
  expect(formatTime(new Date(2026, 5, 1, 7, 30), now)).not.toMatch(/2026|Jun/);
  expect(formatTime(new Date(2026, 0, 2, 7, 30), now)).not.toContain("2026");
  expect(formatTime(new Date(2025, 0, 2, 7, 30), now)).toContain("2025");
});

test("rates, sizes and counts are short", () => {
  expect([formatRate(0), formatRate(0.05), formatRate(2.5), formatRate(93.4), formatRate(12_345)]).toEqual([
    "0/s",
    "3.0/min",
    "2.5/s",
    "93/s",
    "12.3K/s",
  ]);
  expect([formatBytes(0), formatBytes(999), formatBytes(4_200_000)]).toEqual(["0 B", "999 B", "4.2 MB"]);
  expect([plural(1, "run"), plural(1200, "run")]).toEqual(["1 run", "1,200 runs"]);
});
