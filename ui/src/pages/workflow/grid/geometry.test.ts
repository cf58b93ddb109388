import { expect, test } from "vitest";
import { longestOf, rowsAround, step } from "./geometry";
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
