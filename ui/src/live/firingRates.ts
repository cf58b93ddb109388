/**
 * How often each reactor fires, second by second: what the server knows of the last minute, then counted from the feed,
 * which costs no request.
 *
 * Events count when they arrive: the clock of the server may differ from that of the browser, which draws the seconds.
 */

import { addAt, atSeconds, SPAN, secondOf, type Values } from "./counterHistory";
import type { FeedEvent } from "./feed";

/** Seconds after a lost connection in which the events that were missed arrive all at once. */
const CATCHING_UP = 2;

export class FiringRates {
  private readonly counts = new Map<string, Map<number, number>>();
  private readonly totals = new Map<string, number>();
  private readonly filled = new Map<string, Map<number, number>>();
  /** The seconds with a connection; the last one has no end while it is there. */
  private connected: { from: number; to: number }[] = [];

  /** The feed is connected: what happened before this is what the server says. */
  begin(now: Date): void {
    this.end(now);
    const from = secondOf(now) + (this.connected.length > 0 ? CATCHING_UP : 1);
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
    addAt(this.counts, reactor, secondOf(now), Number(event.firings));
  }

  /** Takes what the server knows of the seconds before now, by reactor. */
  fill(firings: Record<string, Values>, now: Date): void {
    for (const [reactor, values] of Object.entries(firings)) this.filled.set(reactor, atSeconds(values, now));
  }

  /** Firings since the reactor was loaded; null before the first of them is known. */
  total(reactor: string): number | null {
    return this.totals.get(reactor) ?? null;
  }

  /** Firings in each of the last full seconds, oldest first; null where not known. It stands still without a feed. */
  history(reactor: string, now: Date): Values {
    const seconds = this.counts.get(reactor);
    const filled = this.filled.get(reactor);
    const first = Math.min(secondOf(now), this.connected.at(-1)?.to ?? Number.POSITIVE_INFINITY) - SPAN;
    return Array.from({ length: SPAN }, (_, index) => {
      const second = first + index;
      return this.isCounted(second) ? (seconds?.get(second) ?? 0) : (filled?.get(second) ?? null);
    });
  }

  private isCounted(second: number): boolean {
    return this.connected.some(({ from, to }) => from <= second && second < to);
  }
}
