import { expect, test } from "vitest";
import type { FeedEvent } from "./feed";
import { concerns, outdatedBy } from "./outdated";

function isOutdated(event: Partial<FeedEvent>, key: unknown[]): boolean {
  return outdatedBy({ id: "1", at: "", tenant: null, type: "", ...event }).some((entry) => concerns(entry, key));
}

const RUNS = ["get", "/api/v1/runs", { params: { query: { state: ["failed"] } } }];
const runKey = (run: string, below = "") => ["get", `/api/v1/runs/{run}${below}`, { params: { path: { run } } }];

test("the end of a run makes lists of runs and that run outdated, and no other run", () => {
  const event = { type: "run.ended", run: "a", workflow: "report" };
  expect(isOutdated(event, RUNS)).toBe(true);
  expect(isOutdated(event, runKey("a"))).toBe(true);
  expect(isOutdated(event, runKey("a", "/tasks"))).toBe(true);
  expect(isOutdated(event, runKey("b"))).toBe(false);
  expect(isOutdated(event, runKey("b", "/handlers"))).toBe(true);
});

test("the state of a task makes its run outdated, and no list of runs", () => {
  const event = { type: "task.state", run: "a", workflow: "report" };
  expect(isOutdated(event, runKey("a"))).toBe(true);
  expect(isOutdated(event, RUNS)).toBe(false);
});

test("a path is not taken for another one that begins alike", () => {
  expect(concerns({ path: "/api/v1/run" }, RUNS)).toBe(false);
});

test("a gap makes everything outdated, an unknown event nothing", () => {
  expect(isOutdated({ type: "events.gap" }, RUNS)).toBe(true);
  expect(isOutdated({ type: "weather.changed" }, RUNS)).toBe(false);
});

test("firings make nothing outdated, the health of a reactor its answers", () => {
  const key = ["get", "/api/v1/reactors/{name}", { params: { path: { name: "market" } } }];
  expect(isOutdated({ type: "reactor.fired", reactor: "market" }, key)).toBe(false);
  expect(isOutdated({ type: "reactor.health", reactor: "market" }, key)).toBe(true);
});

test("a change by other people makes what it is about outdated, and the audit log", () => {
  const event = { type: "change.made", action: "workflow.pause", target: "report" };
  const [workflows, pools, audit] = ["workflows", "pools", "audit"].map((name) => ["get", `/api/v1/${name}`, {}]);
  expect([workflows, pools, audit].map((key) => isOutdated(event, key ?? []))).toEqual([true, false, true]);
  expect(isOutdated({ ...event, action: "pool.set" }, pools ?? [])).toBe(true);
});

test("a rollback by other people and the end of a run make the versions of packages outdated", () => {
  const key = ["get", "/api/v1/packages/{name}/versions", { params: { path: { name: "market" } } }];
  expect(isOutdated({ type: "change.made", action: "package.rollback", target: "market" }, key)).toBe(true);
  expect(isOutdated({ type: "run.ended", run: "a", workflow: "report" }, key)).toBe(true);
  expect(isOutdated({ type: "run.ended", run: "a" }, ["get", "/api/v1/packages/{name}", key[2]])).toBe(false);
});
