import type { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { FeedEvent } from "./feed";
import { refreshFrom } from "./refresh";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
afterEach(() => void vi.useRealTimers());

/** A feed that the test speaks through, and how often the answers were read; each reading takes some time. */
function setUp(milliseconds: number) {
  let emit: (event: FeedEvent) => void = () => {};
  const invalidateQueries = vi.fn(() => new Promise((resolve) => setTimeout(resolve, milliseconds)));
  const feed = {
    subscribe: (listener: typeof emit) => {
      emit = listener;
      return () => true;
    },
  };
  refreshFrom(feed, { invalidateQueries } as unknown as QueryClient);
  const send = () => emit({ id: "1", type: "task.state", at: "", tenant: null, run: "a" });
  return { send, readings: () => invalidateQueries.mock.calls.length };
}

test("events of a moment are one reading", async () => {
  const { send, readings } = setUp(1);
  send();
  send();
  await vi.advanceTimersByTimeAsync(450);
  expect(readings()).toBe(1);
});

test("a slow server is left to its work between two readings", async () => {
  const { send, readings } = setUp(1000);
  for (let moment = 0; moment < 100; moment++) {
    send();
    await vi.advanceTimersByTimeAsync(100);
  }
  // 10 s, of which each reading takes 1 s and is followed by 3 s of rest.
  expect(readings()).toBeLessThanOrEqual(3);
  expect(readings()).toBeGreaterThanOrEqual(2);
});
