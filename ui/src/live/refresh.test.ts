import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { FeedEvent } from "./feed";
import { refreshFrom } from "./refresh";

const KEY = ["get", "/api/v1/runs", {}];

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A list of runs on the page, whose answer has what was true when the request came, and takes a while. */
function pageOfRuns(duration: number) {
  const queries = new QueryClient();
  const server = { runs: 0, requests: 0 };
  const observer = new QueryObserver(queries, {
    queryKey: KEY,
    queryFn: async () => {
      server.requests++;
      const { runs } = server;
      await new Promise((resolve) => setTimeout(resolve, duration));
      return runs;
    },
  });
  const stopReading = observer.subscribe(() => {});
  let listener = (_: FeedEvent) => {};
  const feed = {
    subscribe: (one: typeof listener) => {
      listener = one;
      return () => {};
    },
  };
  const stopRefreshing = refreshFrom(feed, queries);
  const runEnds = () => {
    server.runs++;
    listener({ id: "1", type: "run.ended", at: "", tenant: null, run: "a", workflow: "report" });
  };
  const stop = () => {
    stopRefreshing();
    stopReading();
    queries.clear();
  };
  return { server, runEnds, shown: () => queries.getQueryData(KEY), stop };
}

test("a change during a request that does not have it yet is read after it", async () => {
  const page = pageOfRuns(1000);
  await vi.advanceTimersByTimeAsync(100);
  page.runEnds();
  await vi.advanceTimersByTimeAsync(1000);
  expect(page.shown()).toBe(0);
  await vi.advanceTimersByTimeAsync(5000);
  expect(page.shown()).toBe(1);
  expect(page.server.requests).toBe(2);
  page.stop();
});

test("under a flood of events, a slow server is left to its work between two requests", async () => {
  const page = pageOfRuns(1000);
  for (let count = 0; count < 100; count++) {
    page.runEnds();
    await vi.advanceTimersByTimeAsync(100);
  }
  // 10 s, of which each request takes 1 s and is followed by 3 s of rest.
  expect(page.server.requests).toBeLessThanOrEqual(4);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(page.shown()).toBe(100);
  page.stop();
});

test("nothing is read again once the page is up to date", async () => {
  const page = pageOfRuns(10);
  await vi.advanceTimersByTimeAsync(20);
  page.runEnds();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(page.server.requests).toBe(2);
  page.stop();
});
