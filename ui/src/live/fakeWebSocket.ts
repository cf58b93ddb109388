/** A browser for tests of connections: sockets that a test opens and closes, and time that a test advances. */

import { vi } from "vitest";

export class FakeWebSocket {
  static readonly OPEN = 1;
  static made: FakeWebSocket[] = [];
  readyState = 0;
  sent: string[] = [];
  onopen = () => {};
  onmessage = (_: { data: string }) => {};
  onclose = (_: { code: number; reason: string }) => {};

  constructor(readonly url: string) {
    FakeWebSocket.made.push(this);
  }

  open(): void {
    this.readyState = FakeWebSocket.OPEN;
    this.onopen();
  }

  send(text: string): void {
    this.sent.push(text);
  }

  /** As over a network that is gone: the other side never confirms it. */
  close(): void {
    this.readyState = 2;
  }
}

export function stubBrowser(): void {
  vi.useFakeTimers();
  FakeWebSocket.made = [];
  vi.stubGlobal("WebSocket", FakeWebSocket);
  vi.stubGlobal("location", new URL("http://localhost/"));
  vi.stubGlobal("window", new EventTarget());
  vi.stubGlobal("document", Object.assign(new EventTarget(), { visibilityState: "visible" }));
}
