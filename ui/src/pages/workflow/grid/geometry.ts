/** Where things are in the grid, and how the keyboard moves in it. */

import { secondsBetween } from "@/format/time";
import type { GridRun } from "./useGrid";

/** The side of a cell, in pixels. */
export const CELL = 24;
/** The height of the dates. */
export const AXIS = 18;
/** The height of the dates and of the bars above the cells. */
export const HEAD = 64 + AXIS;
/** Columns that a date needs. */
const DATE_WIDTH = 3;

/** Rows come and go in groups of this many, so that scrolling seldom renders all columns again. */
const GROUP = 10;

/** The rows to render for those in view. */
export function rowsAround(first: number, last: number, count: number): { first: number; last: number } {
  return {
    first: Math.floor(first / GROUP) * GROUP,
    last: Math.min(count, Math.ceil((last + 1) / GROUP) * GROUP) - 1,
  };
}

/** Row -1 is the bar of the run. */
export interface Position {
  column: number;
  row: number;
}

const STEPS: Record<string, Position> = {
  ArrowLeft: { column: -1, row: 0 },
  ArrowRight: { column: 1, row: 0 },
  ArrowUp: { column: 0, row: -1 },
  ArrowDown: { column: 0, row: 1 },
};

/** The position after a key; `null` if the key moves nothing. */
export function step(from: Position | null, key: string, columns: number, rows: number): Position | null {
  const by = STEPS[key];
  if (key === "Home") return { column: 0, row: from?.row ?? 0 };
  if (key === "End") return { column: columns - 1, row: from?.row ?? 0 };
  if (by === undefined) return null;
  const { column, row } = from ?? { column: 0, row: 0 };
  return {
    column: Math.min(columns - 1, Math.max(0, column + by.column)),
    row: Math.min(rows - 1, Math.max(-1, row + by.row)),
  };
}

/** How long a run took, or has run for. */
export function durationOf(run: Pick<GridRun, "started_at" | "ended_at">): number {
  return run.started_at === null ? 0 : secondsBetween(run.started_at, run.ended_at);
}

/** When a run was meant to be: its slot, or when it was started. */
export function logicalTime({ slot, created_at }: Pick<GridRun, "slot" | "created_at">): number {
  return Date.parse(slot ?? created_at);
}

/** Newest first by what they are about: a backfill of last week stands at last week. */
export function inLogicalOrder(runs: GridRun[]): GridRun[] {
  return runs.toSorted((one, other) => logicalTime(other) - logicalTime(one));
}

const DATE = new Intl.DateTimeFormat("en", { month: "short", day: "numeric" });
const DATE_OF_YEAR = new Intl.DateTimeFormat("en", { month: "short", day: "numeric", year: "2-digit" });

/** The dates of the axis, by column: where a day begins, if there is room for it; with the year where that changes. */
export function datesOf(runs: GridRun[], now = new Date()): Map<number, string> {
  const dates = new Map<number, string>();
  let last = { column: Number.NEGATIVE_INFINITY, day: "", year: now.getFullYear() };
  runs.forEach((run, column) => {
    const at = new Date(logicalTime(run));
    const day = at.toDateString();
    if (day === last.day || column - last.column < DATE_WIDTH) return;
    const year = at.getFullYear();
    dates.set(column, (year === last.year ? DATE : DATE_OF_YEAR).format(at));
    last = { column, day, year };
  });
  return dates;
}

const known = new WeakMap<GridRun[], number>();

/** The longest duration of the runs that have ended: the height of all bars is relative to it. */
export function longestOf(runs: GridRun[]): number {
  const found = known.get(runs) ?? Math.max(0.001, ...runs.map((run) => (run.ended_at === null ? 0 : durationOf(run))));
  known.set(runs, found);
  return found;
}
