/**
 * How often each reactor fires, second by second, counted from the feed: it costs no request.
 *
 * Events count when they arrive: the clock of the server may differ from that of the browser, which draws the seconds.
 */

import type { FeedEvent } from "./feed";

const SECOND = 1000;
/** Seconds that are kept. */
export const SPAN = 60;
/** Seconds after a lost connection in which the events that were missed arrive all at once. */
const CATCHING_UP = 2;

export class FiringRates {
  private readonly counts = new Map<string, Map<number, number>>();
  private readonly totals = new Map<string, number>();
  /** The seconds with a connection; the last one has no end while it is there. */
  private connected: { from: number; to: number }[] = [];

  /** The feed is connected: what happened before this is not known. */
  begin(now: Date): void {
    this.end(now);
    const from = secondOf(now) + (this.connected.length > 0 ? CATCHING_UP : 0);
    this.connected = [...this.connected.slice(-SPAN), { from, to: Number.POSITIVE_INFINITY }];
  }

  /** The connection is lost: what happens from now on is not known. */
  end(now: Date): void {
    const last = this.connected.at(-1);
    if (last !== undefined) last.to = Math.min(last.to, secondOf(now));
  }

  note(event: FeedEvent, now: Date): void {
    if (event.type !== "reactor.fired") return;
    const reactor = String(event.reactor);
    this.totals.set(reactor, Number(event.total));
    const second = secondOf(now);
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

  /** Firings in each of the last full seconds, oldest first; null while the feed was not connected. */
  history(reactor: string, now: Date): (number | null)[] {
    const seconds = this.counts.get(reactor);
    const first = secondOf(now) - SPAN;
    return Array.from({ length: SPAN }, (_, index) =>
      this.isKnown(first + index) ? (seconds?.get(first + index) ?? 0) : null,
    );
  }

  private isKnown(second: number): boolean {
    return this.connected.some(({ from, to }) => from <= second && second < to);
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
