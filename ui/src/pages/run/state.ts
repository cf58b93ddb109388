/** What the states of runs and tasks mean for a page. */

const ENDED = new Set(["success", "failed", "cancelled", "skipped", "upstream_failed"]);

/** Whether a run or task stays in this state unless someone reruns it. */
export function hasEnded(state: string): boolean {
  return ENDED.has(state);
}

/** Whether a task has not begun, or waits to go on. */
export function isWaiting(state: string): boolean {
  return !hasEnded(state) && state !== "running";
}
