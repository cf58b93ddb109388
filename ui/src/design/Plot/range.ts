/** How far back plots go: the node keeps values by the second for an hour, and by the minute for a day. */

import { useSearchParam } from "@/app/useSearchParam";

export interface Range {
  id: string;
  label: string;
  seconds: number;
  /** Milliseconds between two readings. */
  refresh: number;
}

const SHORTEST: Range = { id: "15m", label: "15 minutes", seconds: 900, refresh: 5_000 };

export const RANGES: Range[] = [
  SHORTEST,
  { id: "1h", label: "1 hour", seconds: 3600, refresh: 15_000 },
  { id: "1d", label: "1 day", seconds: 86_400, refresh: 60_000 },
];

/** The range of the plots of a page; it is in the address. */
export function useRange(): [range: Range, set: (id: string) => void] {
  const [id, set] = useSearchParam("range", SHORTEST.id);
  return [RANGES.find((one) => one.id === id) ?? SHORTEST, set];
}

/** The times of a series, in seconds since the epoch. */
export function timesOf({ start, step }: { start: string; step: number }, length: number): number[] {
  const first = Date.parse(start) / 1000;
  return Array.from({ length }, (_, index) => first + index * step);
}
