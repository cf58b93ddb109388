import { expect, test } from "vitest";
import {
  changedInputs,
  type Firing,
  firingBefore,
  mergeFirings,
  nodesOf,
  outcomeOf,
  shortValue,
  unseenBetween,
} from "./firings";

function firing(number: number, change: Partial<Firing> = {}): Firing {
  return {
    id: `market-k1-${number}`,
    reactor: "market",
    at: `2026-01-05T10:00:${String(number).padStart(2, "0")}Z`,
    duration: 1e-5,
    ok: true,
    manual: false,
    degraded: false,
    attempt: 1,
    inputs: {},
    results: {},
    ...change,
  };
}

test("firings are merged newest first, each once", () => {
  const known = [firing(3), firing(2)];
  const merged = mergeFirings(known, [firing(5), firing(3)]);
  expect(merged.map(({ id }) => id)).toEqual(["market-k1-5", "market-k1-3", "market-k1-2"]);
  expect(mergeFirings(merged, [firing(5)])).toBe(merged);
});

test("numbers tell how many firings were not seen, but not across a restart", () => {
  expect(unseenBetween(firing(9), firing(4))).toBe(4);
  expect(unseenBetween(firing(9), firing(4, { id: "market-k0-2" }))).toBe(0);
});

test("changed inputs are those that differ from the firing just before", () => {
  const before = firing(1, { inputs: { book: { bid: 1 }, ticks: [1, 2], limits: null } });
  const after = firing(2, { inputs: { book: { bid: 1 }, ticks: [2, 3], limits: null } });
  expect(changedInputs(after, before)).toEqual(["ticks"]);
  expect(changedInputs(firing(5, { inputs: after.inputs }), before)).toEqual([]);
});

test("firings of keyed reactors are compared with the one before of the same key", () => {
  const keyed = (number: number, key: unknown, bid: number) => firing(number, { key, inputs: { book: { bid } } });
  const firings = [keyed(9, ["X", 1], 2), keyed(8, "X", 7), keyed(4, ["X", 1], 1)];
  expect(firingBefore(firings, 0)).toBe(firings[2]);
  expect(firingBefore(firings, 1)).toBeUndefined();
  expect(changedInputs(keyed(9, ["X", 1], 2), firings[2])).toEqual(["book"]);
  expect(firingBefore([firing(2), firing(1)], 0)?.id).toBe("market-k1-1");
});

test("nodes and outcome come from the results of all graphs", () => {
  const failure = { node: "b", message: "node 'b' failed: no", traceback: "" };
  const fine = { ok: true, outputs: { a: { side: 1 }, c: null }, ran: ["a", "c"], skipped: [], error: null };
  const bad = { ok: false, outputs: {}, ran: [], skipped: ["z"], error: failure };
  expect(outcomeOf(firing(1, { results: { g: fine } }))).toEqual({ text: "a side 1", isError: false });
  expect(outcomeOf(firing(1, { results: { g: fine, h: bad } }))).toEqual({ text: failure.message, isError: true });
  expect(nodesOf(firing(1, { results: { g: fine, h: bad } })).failed).toEqual(new Set(["h/b"]));
});

test("values are short", () => {
  expect([shortValue(100.18100000000001), shortValue({ bid: 1, tags: [] }), shortValue([1, 2])]).toEqual([
    "100.181",
    "bid 1 tags none",
    "2 × …",
  ]);
});
