import type { ReactorState } from "../useLiveReactor";

/** Boundaries that wait for the reactor: those in its queue, or without one the newest of each source that is dirty. */
export function bufferedCount({ queued, dirty }: ReactorState): number {
  return queued > 0 ? queued : Object.values(dirty).filter(Boolean).length;
}
