/** The state of one reactor as it changes, from `/ws/reactors/{name}`. */

import type { Schema } from "@/api/types";
import { type ConnectionState, LiveSocket } from "./socket";

type ReactorState = Schema<"ReactorState">;
type Firing = Schema<"FiringView">;

/** Seconds between two states, at least: four a second are as many as people can read. */
const EVERY = 0.25;

export interface Watched {
  connection: ConnectionState;
  /** Why there is no connection. */
  reason: string | null;
  /** The last state; it stays while the connection is lost. */
  state: ReactorState | null;
  /** The newest firing when the state was read. */
  lastFiring: Firing | null;
}

export class ReactorWatch {
  private socket: LiveSocket | null = null;
  private watched: Watched = { connection: "connecting", reason: null, state: null, lastFiring: null };
  private readonly listeners = new Set<() => void>();
  /** Whether the reactor may have been loaded after the server has refused to connect, and before that was heard. */
  private mayBeLoaded = false;

  constructor(private readonly name: string) {}

  start(): void {
    this.socket = new LiveSocket({
      endpoint: () => `/ws/reactors/${encodeURIComponent(this.name)}`,
      question: { id: 2, command: "state" },
      onOpen: (send) => send({ id: 1, command: "watch", every: EVERY }),
      onMessage: (frame) => {
        if (frame.state === undefined) return;
        this.mayBeLoaded = false;
        this.become({ state: frame.state as ReactorState, lastFiring: frame.last_firing as Firing | null });
      },
      onState: (connection, reason) => {
        this.become({ connection, reason: reason || null });
        if (connection === "closed" && this.mayBeLoaded) this.restart();
      },
    });
  }

  stop(): void {
    this.socket?.close();
    this.socket = null;
  }

  retryNow = (): void => this.socket?.retryNow();

  /** Connects again if the server has refused to, or still will: the reactor may have been loaded meanwhile. */
  restart = (): void => {
    this.mayBeLoaded = this.watched.connection !== "closed";
    if (this.mayBeLoaded) return;
    this.stop();
    this.start();
  };

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  getWatched = (): Watched => this.watched;

  private become(change: Partial<Watched>): void {
    this.watched = { ...this.watched, ...change };
    for (const listener of this.listeners) listener();
  }
}
