/** The event feed of the server: one connection per tab, shared by everything that shows something live. */

import { FiringRates } from "./firingRates";
import { RecentEvents } from "./recentEvents";
import { BEAT, type ConnectionState, LiveSocket } from "./socket";

export interface FeedEvent {
  id: string;
  type: string;
  at: string;
  tenant: string | null;
  [field: string]: unknown;
}

/** A sign of life, not an event: it has no id. */
const HEARTBEAT = "events.heartbeat";

type Listener = (event: FeedEvent) => void;

export class Feed {
  private socket: LiveSocket | null = null;
  private last: string | null = null;
  private readonly listeners = new Set<Listener>();
  private readonly stateListeners = new Set<() => void>();
  state: ConnectionState = "connecting";
  /** They belong to the connection, so that a page that is opened again has them at once. */
  readonly rates = new FiringRates();
  readonly recent = new RecentEvents();

  start(): void {
    this.socket = new LiveSocket({
      endpoint: () => {
        const after = this.last === null ? "" : `&after=${encodeURIComponent(this.last)}`;
        return `/ws/events?heartbeat=${BEAT}${after}`;
      },
      onMessage: (frame) => {
        if (frame.type !== HEARTBEAT) this.receive(frame as FeedEvent);
      },
      onState: (state) => this.become(state),
    });
  }

  stop(): void {
    this.socket?.close();
    this.socket = null;
  }

  retryNow = (): void => this.socket?.retryNow();

  subscribe = (listener: Listener): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  subscribeState = (listener: () => void): (() => void) => {
    this.stateListeners.add(listener);
    return () => this.stateListeners.delete(listener);
  };

  getState = (): ConnectionState => this.state;

  private receive(event: FeedEvent): void {
    this.last = event.id;
    this.rates.note(event, new Date());
    this.recent.note(event);
    for (const listener of this.listeners) listener(event);
  }

  private become(state: ConnectionState): void {
    this.state = state;
    if (state === "live") this.rates.begin(new Date());
    else this.rates.end(new Date());
    for (const listener of this.stateListeners) listener();
  }
}
