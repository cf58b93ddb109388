/** The time axis of the Gantt chart: from the creation of a run to its end, or to now. */

const SECOND = 1000;
const STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
  14_400, 21_600, 43_200, 86_400, 172_800, 604_800,
];

export interface Scale {
  start: number;
  end: number;
}

/** The share of the width at which a time is, between 0 and 1. */
export function positionOf({ start, end }: Scale, at: number): number {
  return Math.min(1, Math.max(0, (at - start) / (end - start)));
}

/** Round times on the axis, as seconds since its start: about `count` of them. */
export function ticksOf({ start, end }: Scale, count = 6): number[] {
  const seconds = (end - start) / SECOND;
  const step = STEPS.find((one) => seconds / one <= count) ?? seconds / count;
  return Array.from({ length: Math.floor(seconds / step + 1e-9) + 1 }, (_, index) => index * step);
}

/** From the start of a run to its end; a run that goes on has some room for what comes. */
export function scaleOf(
  run: { created_at: string; started_at: string | null; ended_at: string | null },
  now: number,
): Scale {
  const start = new Date(run.started_at ?? run.created_at).getTime();
  const end = run.ended_at === null ? start + Math.max(SECOND, now - start) * 1.08 : new Date(run.ended_at).getTime();
  return { start, end: Math.max(end, start + 1) };
}
