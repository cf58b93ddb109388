import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { noteAnswer } from "@/api/signedOut";
import { FakeWebSocket, stubBrowser } from "./fakeWebSocket";

vi.mock("@/api/client", () => ({ client: { POST: async () => ({ data: { ticket: "t" } }) } }));

const { LiveSocket } = await import("./socket");

beforeEach(stubBrowser);

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const SECOND = 1000;
const newest = () => FakeWebSocket.made.at(-1) as FakeWebSocket;

async function connected(question?: object) {
  const states: string[] = [];
  const frames: object[] = [];
  const socket = new LiveSocket({
    endpoint: () => "/ws/events",
    onMessage: (frame) => frames.push(frame),
    onState: (state) => states.push(state),
    ...(question && { question }),
  });
  await vi.advanceTimersByTimeAsync(0);
  newest().open();
  return { socket, states, frames };
}

test("a connection on which nothing is heard is given up for a new one", async () => {
  const { socket, states } = await connected();
  await vi.advanceTimersByTimeAsync(50 * SECOND);
  expect(states).toEqual(["connecting", "live", "reconnecting"]);
  expect(FakeWebSocket.made).toHaveLength(2);
  socket.close();
});

test("signs of life keep a connection", async () => {
  const { socket, states } = await connected({ id: 2, command: "state" });
  for (let count = 0; count < 10; count++) {
    await vi.advanceTimersByTimeAsync(15 * SECOND);
    newest().onmessage({ data: "{}" });
  }
  expect(states).toEqual(["connecting", "live"]);
  expect(newest().sent).toHaveLength(10);
  socket.close();
});

test("a connection that was given up says nothing any more", async () => {
  const { socket, frames, states } = await connected();
  const first = newest();
  await vi.advanceTimersByTimeAsync(50 * SECOND);
  first.onmessage({ data: "{}" });
  newest().open();
  first.onclose({ code: 1006, reason: "" });
  expect(frames).toEqual([]);
  expect(states.at(-1)).toBe("live");
  socket.close();
});

test("the return of the network ends the wait for the next attempt", async () => {
  const { socket } = await connected();
  newest().onclose({ code: 1006, reason: "" });
  window.dispatchEvent(new Event("online"));
  await vi.advanceTimersByTimeAsync(0);
  expect(FakeWebSocket.made).toHaveLength(2);
  socket.close();
});

test("a tab that wakes up does not trust a connection from before", async () => {
  const { socket, states } = await connected();
  vi.setSystemTime(Date.now() + 3600 * SECOND);
  document.dispatchEvent(new Event("visibilitychange"));
  expect(states.at(-1)).toBe("reconnecting");
  socket.close();
});

test("signing in again connects at once", async () => {
  const { socket } = await connected();
  noteAnswer(401, "http://localhost/api/v1/runs");
  newest().onclose({ code: 4401, reason: "" });
  noteAnswer(200, "http://localhost/api/v1/me");
  await vi.advanceTimersByTimeAsync(0);
  expect(FakeWebSocket.made).toHaveLength(2);
  socket.close();
});

test("after the end nothing connects", async () => {
  const { socket } = await connected();
  socket.close();
  window.dispatchEvent(new Event("online"));
  await vi.advanceTimersByTimeAsync(100 * SECOND);
  expect(FakeWebSocket.made).toHaveLength(1);
});
