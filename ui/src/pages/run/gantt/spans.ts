/** What a row of the Gantt chart shows: when a task waited and when its attempts ran, in milliseconds. */

import type { Schema } from "@/api/types";
import type { GraphEdge } from "@/design/GraphView/GraphView";
import { hasEnded } from "../state";
import { upstreamOf } from "../structure";
import type { Task } from "../useRunTasks";

export interface Span {
  from: number;
  to: number;
  kind: "waiting" | "attempt";
  /** How it ended, or the state of the task while it goes on. */
  state: string;
  /** The number of the attempt; 0 for a wait. */
  attempt: number;
}

export type Attempt = Schema<"AttemptInfo">;

const time = (at: string): number => new Date(at).getTime();

/** When each task could have begun: at the end of the last task before it, or at the start of the run. */
export function readyTimes(tasks: Task[], edges: GraphEdge[], runStart: number): Map<string, number> {
  const ends = new Map(tasks.map((task) => [task.task, task.ended_at === null ? null : time(task.ended_at)]));
  const upstream = upstreamOf(edges);
  const ready = new Map<string, number>();
  for (const { task } of tasks) {
    const before = (upstream.get(task) ?? []).map((name) => ends.get(name) ?? null);
    if (before.every((end) => end !== null)) ready.set(task, Math.max(runStart, ...before));
  }
  return ready;
}

/** The spans of a task or element, in order; `attempts` are known only if it had several. */
export function spansOf(task: Task, ready: number | undefined, attempts: Attempt[], now: number): Span[] {
  const ran = attempts.length > 0 ? attempts.flatMap((one) => toSpan(one, task, now)) : whole(task, now);
  const spans: Span[] = [];
  let free = ready;
  for (const span of ran) {
    if (free !== undefined && span.from > free) spans.push(waiting(free, span.from, task.state));
    spans.push(span);
    free = span.to;
  }
  const isOpen = !hasEnded(task.state) && task.state !== "running";
  if (isOpen && free !== undefined && now > free) spans.push(waiting(free, now, task.state));
  return spans;
}

function waiting(from: number, to: number, state: string): Span {
  return { from, to, kind: "waiting", state, attempt: 0 };
}

function whole(task: Task, now: number): Span[] {
  if (task.started_at === null) return [];
  const to = task.ended_at === null ? now : time(task.ended_at);
  return [{ from: time(task.started_at), to, kind: "attempt", state: task.state, attempt: task.attempts }];
}

function toSpan(attempt: Attempt, task: Task, now: number): Span[] {
  if (attempt.started_at === null) return [];
  const to = attempt.ended_at === null ? now : time(attempt.ended_at);
  const state = attempt.outcome ?? task.state;
  return [{ from: time(attempt.started_at), to, kind: "attempt", state, attempt: attempt.attempt }];
}
