/**
 * A WebSocket that comes back.
 *
 * It takes a ticket first, because a browser cannot send a key with a WebSocket, and connects again after any loss, with
 * growing delays. A close code that says that connecting again is useless (no such reactor, not allowed) ends it.
 * A connection on which nothing is heard for long counts as lost: a network that goes away closes nothing.
 */

import { client } from "@/api/client";
import { ROOT } from "@/api/root";
import { isSignedOut, onSignedOutChange } from "@/api/signedOut";
import { reconnectDelay } from "./backoff";
import { onReturn } from "./onReturn";

export type ConnectionState = "connecting" | "live" | "reconnecting" | "closed";

const FINAL_CODES = new Set([4403, 4404]);
/** Seconds between two signs of life of a connection. */
export const BEAT = 15;
/** Without one for this long, in milliseconds, a connection is lost. */
const SILENCE = 40_000;

export interface SocketHandlers {
  /** The endpoint with its parameters, asked for at every connection. */
  endpoint: () => string;
  onMessage: (frame: Record<string, unknown>) => void;
  onState: (state: ConnectionState, reason?: string) => void;
  onOpen?: (send: (frame: object) => void) => void;
  /** A frame that the server answers, sent at every beat; without it the server sends signs of life by itself. */
  question?: object;
}

export class LiveSocket {
  private socket: WebSocket | null = null;
  private timer: ReturnType<typeof setTimeout> | null = null;
  private attempt = 0;
  private isClosed = false;
  private heardAt = 0;
  private readonly cleanups: (() => void)[];

  constructor(private readonly handlers: SocketHandlers) {
    const beat = setInterval(() => this.beat(), BEAT * 1000);
    this.cleanups = [
      () => clearInterval(beat),
      onReturn(() => this.check()),
      onSignedOutChange(() => !isSignedOut() && this.retryNow()),
    ];
    handlers.onState("connecting");
    void this.connect();
  }

  /** Sends a frame; it is dropped while there is no connection, because `onOpen` sends what a new one needs. */
  send(frame: object): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(frame));
  }

  close(): void {
    this.end();
    if (this.timer !== null) clearTimeout(this.timer);
    this.socket?.close();
  }

  /** Connects now instead of at the end of the delay. */
  retryNow(): void {
    if (this.timer === null) return;
    clearTimeout(this.timer);
    this.timer = null;
    void this.connect();
  }

  private end(): void {
    this.isClosed = true;
    for (const cleanup of this.cleanups) cleanup();
  }

  private beat(): void {
    this.check();
    if (this.handlers.question !== undefined) this.send(this.handlers.question);
  }

  /** Gives up a connection that is silent, and does not wait longer for a new one. */
  private check(): void {
    this.retryNow();
    const socket = this.socket;
    if (socket?.readyState !== WebSocket.OPEN || Date.now() - this.heardAt < SILENCE) return;
    this.socket = null;
    socket.close();
    this.reconnect("nothing was heard of the server");
  }

  private async connect(): Promise<void> {
    const endpoint = this.handlers.endpoint();
    try {
      const url = await ticketedUrl(endpoint);
      if (!this.isClosed) this.open(url);
    } catch {
      this.reconnect("no ticket");
    }
  }

  private open(url: string): void {
    const socket = new WebSocket(url);
    this.socket = socket;
    socket.onopen = () => {
      this.attempt = 0;
      this.heardAt = Date.now();
      this.handlers.onState("live");
      this.handlers.onOpen?.((frame) => socket.send(JSON.stringify(frame)));
    };
    socket.onmessage = (message) => {
      if (socket !== this.socket) return;
      this.heardAt = Date.now();
      this.handlers.onMessage(JSON.parse(String(message.data)));
    };
    socket.onclose = (event) => {
      if (socket === this.socket) this.lost(event);
    };
  }

  private lost(event: CloseEvent): void {
    if (this.isClosed) return;
    if (FINAL_CODES.has(event.code)) {
      this.end();
      this.handlers.onState("closed", event.reason);
    } else {
      this.reconnect(event.reason);
    }
  }

  private reconnect(reason: string): void {
    if (this.isClosed) return;
    this.handlers.onState("reconnecting", reason);
    this.timer = setTimeout(
      () => {
        this.timer = null;
        void this.connect();
      },
      reconnectDelay(this.attempt++),
    );
  }
}

async function ticketedUrl(endpoint: string): Promise<string> {
  const [path = endpoint] = endpoint.split("?");
  const { data } = await client.POST("/api/v1/tickets", { body: { endpoint: path } });
  const url = new URL(ROOT + endpoint, location.href);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  if (data) url.searchParams.set("ticket", data.ticket);
  return url.href;
}
