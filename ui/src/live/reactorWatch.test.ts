import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { FakeWebSocket, stubBrowser } from "./fakeWebSocket";

vi.mock("@/api/client", () => ({ client: { POST: async () => ({ data: { ticket: "t" } }) } }));

const { ReactorWatch } = await import("./reactorWatch");

beforeEach(stubBrowser);

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const UNKNOWN = { code: 4404, reason: "there is no reactor 'shop'" };
const newest = () => FakeWebSocket.made.at(-1) as FakeWebSocket;
const connections = () => FakeWebSocket.made.length;

async function connected() {
  const watch = new ReactorWatch("shop");
  watch.start();
  await vi.advanceTimersByTimeAsync(0);
  newest().open();
  return watch;
}

test("a reactor that is loaded after the server has refused is watched", async () => {
  const watch = await connected();
  newest().onclose(UNKNOWN);
  expect(watch.getWatched().connection).toBe("closed");
  watch.restart();
  await vi.advanceTimersByTimeAsync(0);
  expect(connections()).toBe(2);
  watch.stop();
});

test("the refusal of the time before the load ends nothing if it is heard later", async () => {
  const watch = await connected();
  watch.restart();
  newest().onclose(UNKNOWN);
  await vi.advanceTimersByTimeAsync(0);
  expect(connections()).toBe(2);
  newest().open();
  newest().onclose(UNKNOWN);
  await vi.advanceTimersByTimeAsync(0);
  expect([watch.getWatched().connection, connections()]).toEqual(["closed", 2]);
  watch.stop();
});

test("a reactor that is unloaded later is not asked for again", async () => {
  const watch = await connected();
  watch.restart();
  newest().onmessage({ data: JSON.stringify({ id: 1, state: {}, last_firing: null }) });
  newest().onclose(UNKNOWN);
  await vi.advanceTimersByTimeAsync(0);
  expect([watch.getWatched().connection, connections()]).toEqual(["closed", 1]);
  watch.stop();
});
