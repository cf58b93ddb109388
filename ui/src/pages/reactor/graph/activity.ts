/** What the nodes of a reactor do: how often each one runs, how slow its firings are, and which route a firing took. */

import { formatDuration } from "@/format/duration";
import { formatRate } from "@/format/number";
import { type Firing, nodesOf } from "../firings";
import { REACTOR, type Wire } from "./reactorGraph";

export interface NodeActivity {
  /** The share of firings in which the node ran. */
  share: number;
  /** Of the firings in which it ran. */
  p99: number;
}

/** Firings that count. Of a hundred, the slowest one is the p99. */
const RECENT = 100;

export function nodeActivity(firings: Firing[]): Map<string, NodeActivity> {
  const recent = firings.slice(0, RECENT);
  const found = new Map<string, NodeActivity>();
  for (const firing of recent) {
    for (const id of nodesOf(firing).ran) {
      const before = found.get(id);
      const share = (before?.share ?? 0) + 1 / recent.length;
      found.set(id, { share, p99: Math.max(before?.p99 ?? 0, firing.duration) });
    }
  }
  return found;
}

/** How often a node runs, and how slow the firings are in which it runs, as texts. */
export function figuresOf(activity: NodeActivity | undefined, fires: number): [rate: string, p99: string] {
  return [formatRate(fires * (activity?.share ?? 0)), activity ? formatDuration(activity.p99) : "–"];
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
  rates: { fires: number | null; emitted: Record<string, number> },
  activity: Map<string, NodeActivity>,
): number {
  if (target === REACTOR) return rates.emitted[source] ?? 0;
  return (rates.fires ?? 0) * (activity.get(target)?.share ?? 0);
}
