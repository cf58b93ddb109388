/** The newest events that people want to read, kept while the tab is open. */

import type { FeedEvent } from "./feed";

const KEPT = 100;
/** Too many to read, or in the audit log. */
const NOISE = new Set(["task.state", "reactor.fired", "change.made"]);

export class RecentEvents {
  private events: readonly FeedEvent[] = [];
  private readonly listeners = new Set<() => void>();

  note(event: FeedEvent): void {
    if (NOISE.has(event.type)) return;
    this.events = [event, ...this.events].slice(0, KEPT);
    for (const listener of this.listeners) listener();
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Newest first. */
  getEvents = (): readonly FeedEvent[] => this.events;
}
