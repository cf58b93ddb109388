/** The colour of each state: one table, so that a state looks the same on every page. */

import type { AccumulatorHealth, ReactorHealth, RunState, Schema, TaskState } from "@/api/types";

export type Tone = "green" | "blue" | "red" | "amber" | "violet" | "grey";

type NodeState = Schema<"NodeSummary">["state"];
type PackageState = Schema<"PackageInfo">["state"];

const TONES: Record<
  RunState | TaskState | ReactorHealth | AccumulatorHealth | NodeState | PackageState | "paused",
  Tone
> = {
  none: "grey",
  scheduled: "grey",
  queued: "amber",
  running: "blue",
  success: "green",
  failed: "red",
  cancelled: "grey",
  skipped: "grey",
  upstream_failed: "red",
  up_for_retry: "amber",
  deferred: "violet",
  starting: "blue",
  warming: "blue",
  live: "green",
  degraded: "amber",
  connecting: "blue",
  disconnected: "amber",
  socket_only: "green",
  paused: "violet",
  alive: "green",
  silent: "amber",
  dead: "red",
  published: "grey",
  preparing: "blue",
  waiting: "amber",
  loaded: "green",
  unloading: "grey",
  unloaded: "grey",
};

export type State = keyof typeof TONES;

export function toneOf(state: string): Tone {
  return TONES[state as State] ?? "grey";
}

/** A state as people read it: `up_for_retry` is "up for retry", `none` is "waiting". */
export function stateLabel(state: string): string {
  return state === "none" ? "waiting" : state.replaceAll("_", " ");
}
