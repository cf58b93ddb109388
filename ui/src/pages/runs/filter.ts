/** The filters of the list of runs, as they are in the address. */

import type { RunState } from "@/api/types";
import type { RunFilter } from "@/api/useRuns";

export const RUN_STATES: RunState[] = ["queued", "running", "success", "failed", "cancelled"];

export const CAUSES = ["manual", "schedule", "trigger", "firing", "backfill", "task", "handler"];

export interface RunSearch {
  q: string;
  workflow: string;
  /** States, with commas between them. */
  state: string;
  /** What started it. */
  cause: string;
  /** Days, as `2026-01-05`. */
  from: string;
  to: string;
  /** "true": only failed runs that need a person. */
  unresolved: string;
}

/** What to ask the server for: days are whole, in the time zone of the reader. */
export function filterOf({ q, workflow, state, cause, from, to, unresolved }: RunSearch): RunFilter {
  const filter: RunFilter = {};
  if (q !== "") filter.q = q;
  if (workflow !== "") filter.workflow = workflow;
  const states = statesOf(state);
  if (states.length > 0) filter.state = states;
  if (cause !== "") filter.cause = cause;
  if (unresolved === "true") filter.unresolved = true;
  if (isDay(from)) filter.from = new Date(`${from}T00:00:00`).toISOString();
  if (isDay(to)) filter.to = new Date(`${to}T23:59:59.999`).toISOString();
  return filter;
}

export function statesOf(text: string): RunState[] {
  const wanted = text.split(",");
  return RUN_STATES.filter((state) => wanted.includes(state));
}

/** The states with one of them switched on or off. */
export function toggleState(text: string, state: string): string {
  const before = statesOf(text) as string[];
  return RUN_STATES.filter((one) => before.includes(one) !== (one === state)).join(",");
}

export function isFiltered(search: RunSearch): boolean {
  return Object.keys(filterOf(search)).length > 0;
}

function isDay(text: string): boolean {
  return !Number.isNaN(Date.parse(`${text}T00:00:00`));
}
