/** How often each reactor fires, second by second, counted from the feed: it costs no request. */

import type { FeedEvent } from "./feed";

const SECOND = 1000;
/** Seconds that are kept. */
export const SPAN = 60;

export class FiringRates {
  private readonly counts = new Map<string, Map<number, number>>();
  private readonly totals = new Map<string, number>();
  private since = Number.POSITIVE_INFINITY;

  /** The feed is connected: what happened before this is not known. */
  begin(now: Date): void {
    this.since = Math.min(this.since, secondOf(now));
  }

  note(event: FeedEvent): void {
    if (event.type !== "reactor.fired") return;
    const reactor = String(event.reactor);
    this.totals.set(reactor, Number(event.total));
    const second = secondOf(new Date(event.at));
    const seconds = this.counts.get(reactor) ?? new Map<number, number>();
    seconds.set(second, (seconds.get(second) ?? 0) + Number(event.firings));
    for (const old of seconds.keys()) {
      if (old >= second - SPAN - 1) break;
      seconds.delete(old);
    }
    this.counts.set(reactor, seconds);
  }

  /** Firings since the reactor was loaded; null before the first of them is known. */
  total(reactor: string): number | null {
    return this.totals.get(reactor) ?? null;
  }

  /** Firings in each of the last full seconds, oldest first; null before the feed was connected. */
  history(reactor: string, now: Date): (number | null)[] {
    const seconds = this.counts.get(reactor);
    const first = secondOf(now) - SPAN;
    return Array.from({ length: SPAN }, (_, index) =>
      first + index < this.since ? null : (seconds?.get(first + index) ?? 0),
    );
  }
}

/** The rate of now: the mean of the last few seconds, so that the figure is calm. */
export function currentRate(history: (number | null)[], over = 5): number {
  const newest = history.slice(-over).filter((count) => count !== null);
  return newest.reduce((sum, count) => sum + count, 0) / Math.max(1, newest.length);
}

function secondOf(time: Date): number {
  return Math.floor(time.getTime() / SECOND);
}
