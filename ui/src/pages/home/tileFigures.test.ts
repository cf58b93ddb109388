import { expect, it } from "vitest";
import type { Schema } from "@/api/types";
import { CALM } from "./calm";
import { type Tile, tilesOf } from "./tileFigures";

const AT = "2026-01-01T00:00:00Z";

function tile(label: string, overview: Partial<Schema<"Overview">>): Omit<Tile, "label" | "tone"> | undefined {
  const found = tilesOf({ ...CALM, ...overview }).find((one) => one.label === label);
  return found && { count: found.count, to: found.to, ...(found.search && { search: found.search }) };
}

it("counts every late slot of a schedule, and leads to the schedules that are late", () => {
  const late = (workflow: string, slots: number) => ({ workflow, key: "a", slot: AT, slots, reason: "no leader" });
  expect(tile("Late slots", { late: { slots: [late("report", 3), late("digest", 1)], runs: [] } })).toEqual({
    count: 4,
    to: "/schedules",
    search: { late: "true" },
  });
});

it("leads to the dead letters of one reactor, or to the reactors that have some", () => {
  const of = (reactor: string) => ({ kind: "reactor", name: reactor, reactor, number: 2 });
  const one = { dead_letters: 2, dead_letter_sources: [of("shop")] };
  const two = { dead_letters: 4, dead_letter_sources: [of("shop"), of("market")] };
  const all = { to: "/reactors", search: { dead_letters: "true" } };
  expect(tile("Dead letters", one)).toEqual({ count: 2, to: "/reactors/shop", search: { tab: "dead-letters" } });
  expect(tile("Dead letters", two)).toEqual({ count: 4, ...all });
  expect(tile("Dead letters", {})).toEqual({ count: 0, ...all });
});

it("leads to the reactors that are not live", () => {
  const part = { kind: "reactor" as const, name: "shop", health: "warming", since: AT, reason: "" };
  const degraded = [part, { ...part, kind: "accumulator" as const, name: "orders" }];
  expect(tile("Reactors not live", { degraded })).toEqual({ count: 1, to: "/reactors", search: { not_live: "true" } });
});
