/** The slots of the next hour, one lane per workflow. */

import type { Schema } from "@/api/types";

type Slot = Schema<"ComingSlot">;

const HOUR = 3_600_000;
/** More slots than these are drawn as a band: single marks would touch. */
const CROWDED = 40;

export interface Lane {
  workflow: string;
  isPaused: boolean;
  /** Where each slot is within the hour, from 0 to 1, the nearest first. */
  marks: { slot: string; at: number }[];
  isBand: boolean;
}

/** Lanes by name; slots that have passed since the answer are left out. */
export function lanesOf(slots: Slot[], now: Date): Lane[] {
  const lanes = new Map<string, Lane>();
  for (const { workflow, slot, paused } of slots) {
    const at = (new Date(slot).getTime() - now.getTime()) / HOUR;
    if (at < 0 || at > 1) continue;
    const lane = lanes.get(workflow) ?? { workflow, isPaused: paused, marks: [], isBand: false };
    lane.marks.push({ slot, at });
    lane.isBand = lane.marks.length > CROWDED;
    lanes.set(workflow, lane);
  }
  // Not by the next slot: rows that change their order are hard to read.
  return [...lanes.values()].sort((one, other) => one.workflow.localeCompare(other.workflow));
}
