/** The order of states in bars and filters: what has ended first, what has not begun last. */

const ORDER = [
  "success",
  "skipped",
  "cancelled",
  "upstream_failed",
  "failed",
  "running",
  "deferred",
  "up_for_retry",
  "queued",
  "scheduled",
  "none",
];

/** The states that occur, with their counts, in the order of every bar. */
export function inOrder(counts: Record<string, number>): [state: string, count: number][] {
  return Object.entries(counts)
    .filter(([, count]) => count > 0)
    .sort(([one], [other]) => ORDER.indexOf(one) - ORDER.indexOf(other));
}
