/** Latencies of firings: which of them are slow. */

import type { Tone } from "@/design/tone";

/** From here on a p99 is shown amber, and red: firings of a healthy graph take microseconds. */
export const SLOW = 100e-6;
export const VERY_SLOW = 1e-3;

export function latencyTone(p99: number | undefined): Tone | undefined {
  if (p99 === undefined || p99 < SLOW) return undefined;
  return p99 < VERY_SLOW ? "amber" : "red";
}
