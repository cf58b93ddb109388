/** The slots of a week, as what the cells of the calendar show. */

import type { Schema } from "@/api/types";
import { dayKey } from "./week";

type Slot = Schema<"CalendarSlot">;

/** The slots of one workflow in one hour. */
export interface Entry {
  workflow: string;
  slots: Slot[];
  /** The state that matters most: a failed run among ten good ones must be seen. */
  state: string;
}

/** The most important first. */
const IMPORTANCE = ["failed", "late", "running", "queued", "cancelled", "dropped", "success", "coming"];

export function cellKey(day: Date, hour: number): string {
  return `${dayKey(day)} ${hour}`;
}

/** What each cell shows, by `cellKey`: one entry per workflow, in the order of their first slots. */
export function entriesByCell(slots: Slot[]): Map<string, Entry[]> {
  const cells = new Map<string, Entry[]>();
  for (const slot of slots) {
    const time = new Date(slot.slot);
    const key = cellKey(time, time.getHours());
    const entries = cells.get(key) ?? [];
    cells.set(key, entries);
    const known = entries.find(({ workflow }) => workflow === slot.workflow);
    if (known === undefined) {
      entries.push({ workflow: slot.workflow, slots: [slot], state: stateOf(slot) });
    } else {
      known.slots.push(slot);
      known.state = moreImportant(known.state, stateOf(slot));
    }
  }
  return cells;
}

/** What must be seen first. */
export function byImportance(entries: Entry[]): Entry[] {
  return entries.toSorted((one, other) => IMPORTANCE.indexOf(one.state) - IMPORTANCE.indexOf(other.state));
}

/** The state of a slot: that of its run, or why it has none. */
export function stateOf({ status, run_state }: Slot): string {
  return status === "started" ? (run_state ?? "success") : status;
}

function moreImportant(one: string, other: string): string {
  return IMPORTANCE.indexOf(one) <= IMPORTANCE.indexOf(other) ? one : other;
}
