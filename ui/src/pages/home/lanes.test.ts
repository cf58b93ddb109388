import { describe, expect, it } from "vitest";
import { lanesOf } from "./lanes";

const NOW = new Date("2026-01-01T12:00:00Z");

function slot(workflow: string, minutes: number) {
  const time = new Date(NOW.getTime() + minutes * 60_000).toISOString();
  return { workflow, key: "default", slot: time, local: time, paused: false };
}

describe("lanesOf", () => {
  it("has a lane per workflow, by name, with marks within the hour", () => {
    const lanes = lanesOf([slot("report", 30), slot("digest", 15), slot("digest", 45)], NOW);
    expect(lanes.map(({ workflow, marks }) => [workflow, marks.map(({ at }) => at)])).toEqual([
      ["digest", [0.25, 0.75]],
      ["report", [0.5]],
    ]);
  });

  it("leaves out what has passed", () => {
    expect(lanesOf([slot("report", -1)], NOW)).toEqual([]);
  });

  it("draws many slots as a band", () => {
    const every = Array.from({ length: 60 }, (_, minute) => slot("rates", minute));
    expect(lanesOf(every, NOW)[0]?.isBand).toBe(true);
  });
});
