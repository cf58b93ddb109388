/** The figures of Home, each with the page that lists what it counts. */

import type { Schema } from "@/api/types";
import type { Tone } from "@/design/tone";

export interface Tile {
  label: string;
  count: number;
  /** The tone if there are any. */
  tone: Tone;
  to: string;
  search?: Record<string, string>;
}

export function tilesOf({ active, late, failed_runs, degraded, failed_packages, ...rest }: Schema<"Overview">): Tile[] {
  return [
    { label: "Running", count: active.running ?? 0, tone: "blue", to: "/runs", search: { state: "running" } },
    { label: "Queued", count: active.queued ?? 0, tone: "grey", to: "/runs", search: { state: "queued" } },
    { label: "Late slots", count: lateSlots(late.slots), tone: "amber", to: "/schedules", search: { late: "true" } },
    { label: "Failed runs", count: failed_runs ?? 0, tone: "red", to: "/runs", search: { unresolved: "true" } },
    ...packageTiles(failed_packages.length),
    {
      label: "Reactors not live",
      count: notLive(degraded),
      tone: "amber",
      to: "/reactors",
      search: { not_live: "true" },
    },
    {
      label: "Dead letters",
      count: rest.dead_letters,
      tone: "amber",
      ...deadLetterPage(rest.dead_letter_sources ?? []),
    },
  ];
}

/** Packages nearly always load: their tile is there only if one did not. */
function packageTiles(count: number): Tile[] {
  return count > 0 ? [{ label: "Packages not loaded", count, tone: "red", to: "/packages" }] : [];
}

/** A schedule may have several. */
function lateSlots(schedules: Schema<"LateSlot">[]): number {
  return schedules.reduce((sum, { slots }) => sum + slots, 0);
}

/** An accumulator that is not live is shown with its reactor. */
function notLive(degraded: Schema<"UnhealthyPart">[]): number {
  return degraded.filter(({ kind }) => kind === "reactor").length;
}

/** The dead letters of one reactor are a tab of its page; those of several are in the list of the reactors with some. */
function deadLetterPage(sources: Schema<"DeadLetterCount">[]): Pick<Tile, "to" | "search"> {
  const [first, ...others] = new Set(sources.map(({ reactor }) => reactor));
  if (first === undefined || others.length > 0) return { to: "/reactors", search: { dead_letters: "true" } };
  return { to: `/reactors/${encodeURIComponent(first)}`, search: { tab: "dead-letters" } };
}
