import { expect, test } from "vitest";
import { datesOf, inLogicalOrder, longestOf, rowsAround, step } from "./geometry";
import type { GridRun } from "./useGrid";

test("arrows move by one cell and stay inside", () => {
  expect(step({ column: 0, row: 0 }, "ArrowRight", 3, 2)).toEqual({ column: 1, row: 0 });
  expect(step({ column: 2, row: 1 }, "ArrowRight", 3, 2)).toEqual({ column: 2, row: 1 });
  expect(step({ column: 0, row: 0 }, "ArrowUp", 3, 2)).toEqual({ column: 0, row: -1 });
  expect(step({ column: 0, row: -1 }, "ArrowUp", 3, 2)).toEqual({ column: 0, row: -1 });
  expect(step({ column: 1, row: 1 }, "End", 3, 2)).toEqual({ column: 2, row: 1 });
  expect(step(null, "x", 3, 2)).toBeNull();
});

test("rows are rendered in groups that contain those in view", () => {
  expect(rowsAround(0, 8, 50)).toEqual({ first: 0, last: 9 });
  expect(rowsAround(13, 30, 50)).toEqual({ first: 10, last: 39 });
  expect(rowsAround(0, 4, 5)).toEqual({ first: 0, last: 4 });
});

test("bars are relative to the longest run that has ended", () => {
  const run = (started: string, ended: string | null) => ({ started_at: started, ended_at: ended }) as GridRun;
  const runs = [
    run("2026-01-05T10:00:00Z", null),
    run("2026-01-05T10:00:00Z", "2026-01-05T10:00:04Z"),
    run("2026-01-05T10:00:00Z", "2026-01-05T10:00:09Z"),
  ];
  expect(longestOf(runs)).toBe(9);
  expect(longestOf([])).toBe(0.001);
});

const at = (created: string, slot: string | null = null) =>
  ({ id: slot ?? created, created_at: created, slot }) as GridRun;

test("UD-15: a backfill stands where its slots are, not where it was started", () => {
  const runs = [
    at("2026-11-20T00:02:00Z", "2026-11-01T12:00:00Z"),
    at("2026-11-20T00:01:00Z", "2026-10-31T12:00:00Z"),
    at("2026-11-19T12:00:00Z"),
    at("2026-11-18T12:00:05Z", "2026-11-18T12:00:00Z"),
  ];
  expect(inLogicalOrder(runs).map(({ id }) => id.slice(5, 10))).toEqual(["11-19", "11-18", "11-01", "10-31"]);
});

test("UD-15: the axis has a date where a day begins, if there is room, and the year where it changes", () => {
  const days = [
    ...Array(4).fill("2026-01-02"),
    ...Array(3).fill("2026-01-01"),
    "2025-12-31",
    "2025-12-30",
    "2025-12-29",
  ];
  const dates = datesOf(
    days.map((day) => at(`${day}T12:00:00Z`)),
    new Date("2026-02-01T00:00:00Z"),
  );
  expect([...dates]).toEqual([
    [0, "Jan 2"],
    [4, "Jan 1"],
    [7, "Dec 31, 25"],
  ]);
});
