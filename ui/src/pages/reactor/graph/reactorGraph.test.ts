import { expect, test } from "vitest";
import type { Schema } from "@/api/types";
import type { Firing } from "../firings";
import { isOnRoute, nodeActivity, routeOf, wireRate } from "./activity";
import { REACTOR, reactorGraph, type Wire } from "./reactorGraph";

const input = (source: string, origin: "node" | "input", optional = false) => ({
  parameter: source,
  type: "",
  origin,
  source,
  optional,
});
const node = (name: string, inputs: ReturnType<typeof input>[]) => ({
  name,
  inputs,
  returns: "",
  routes: {},
  is_terminal: false,
  is_async: false,
  feeds: null,
  owner: "",
  description: "",
});
const MAKER: Schema<"GraphDetails"> = {
  name: "maker",
  reactor: "market",
  is_async: false,
  inputs: [],
  nodes: [
    node("decide", [input("book", "input"), input("limits", "input", true)]),
    node("order", [input("decide", "node")]),
    node("wait", [input("decide", "node")]),
  ],
  edges: [
    { source: "decide", target: "order", parameter: "decide", classes: ["Trade"], optional: false },
    { source: "decide", target: "wait", parameter: "decide", classes: ["Hold"], optional: false },
  ],
  source: "",
  owner: "",
  description: "",
};
const STRUCTURE = reactorGraph(["book", "limits"], [MAKER]);
const wire = (source: string, target: string): Wire =>
  STRUCTURE.wires.find((one) => one.source === source && one.target === target) as Wire;

const FIRING = {
  id: "market-k-1",
  at: "2026-01-05T10:00:00Z",
  duration: 2e-4,
  inputs: {},
  results: { maker: { ok: true, outputs: {}, ran: ["decide", "order"], skipped: ["wait"], error: null } },
} as unknown as Firing;

test("accumulators lead to the reactor, the reactor to nodes by input, nodes to nodes by class", () => {
  expect(STRUCTURE.wires.map(({ source, target, label }) => [source, target, label])).toEqual([
    ["book", REACTOR, ""],
    ["limits", REACTOR, ""],
    [REACTOR, "maker/decide", "book, limits"],
    ["maker/decide", "maker/order", "Trade"],
    ["maker/decide", "maker/wait", "Hold"],
  ]);
});

test("the route has what changed and what ran, and nothing else", () => {
  const route = routeOf(FIRING, ["book"]);
  expect(isOnRoute(wire("book", REACTOR), route)).toBe(true);
  expect(isOnRoute(wire("limits", REACTOR), route)).toBe(false);
  expect(isOnRoute(wire("maker/decide", "maker/order"), route)).toBe(true);
  expect(isOnRoute(wire("maker/decide", "maker/wait"), route)).toBe(false);
});

test("a node runs as often as its share of the firings", () => {
  const held = { ...FIRING, results: { maker: { ...FIRING.results.maker, ran: ["decide", "wait"] } } } as Firing;
  const activity = nodeActivity([FIRING, held, held, held]);
  expect(activity.get("maker/order")).toEqual({ share: 0.25, p99: 2e-4 });
  const rates = { fires: 200, emitted: { book: 180 } };
  expect(wireRate(wire("maker/decide", "maker/order"), rates, activity)).toBe(50);
  expect(wireRate(wire("book", REACTOR), rates, activity)).toBe(180);
});
