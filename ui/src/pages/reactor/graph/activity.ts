/** What the nodes of a reactor do: how often each one runs, how slow its firings are, and which route a firing took. */

import { type Firing, nodesOf } from "../firings";
import { percentilesOf } from "../latency";
import { REACTOR, type Wire } from "./reactorGraph";

export interface NodeActivity {
  /** The share of firings in which the node ran. */
  share: number;
  /** Of the firings in which it ran; null if it ran in none. */
  p99: number | null;
}

/** Firings that count for shares and latencies: few enough to follow a change, enough for a p99. */
const RECENT = 200;

export function nodeActivity(firings: Firing[]): Map<string, NodeActivity> {
  const recent = firings.slice(0, RECENT);
  const durations = new Map<string, number[]>();
  for (const firing of recent) {
    for (const id of nodesOf(firing).ran) durations.set(id, [...(durations.get(id) ?? []), firing.duration]);
  }
  return new Map(
    [...durations].map(([id, times]) => [
      id,
      { share: times.length / recent.length, p99: percentilesOf(times)?.p99 ?? null },
    ]),
  );
}

export interface Route {
  /** Boxes that took part: accumulators whose value changed, the reactor, nodes that ran. */
  active: Set<string>;
  failed: Set<string>;
}

export function routeOf(firing: Firing | undefined, changed: string[]): Route {
  if (firing === undefined) return { active: new Set(), failed: new Set() };
  const { ran, failed } = nodesOf(firing);
  return { active: new Set([...changed, REACTOR, ...ran, ...failed]), failed };
}

export function isOnRoute({ source, target }: Wire, { active }: Route): boolean {
  return active.has(source) && active.has(target);
}

/** How often something passes a wire, per second. */
export function wireRate(
  { source, target }: Wire,
  rates: { fires: number; emitted: Record<string, number> },
  activity: Map<string, NodeActivity>,
): number {
  if (target === REACTOR) return rates.emitted[source] ?? 0;
  return rates.fires * (activity.get(target)?.share ?? 0);
}
