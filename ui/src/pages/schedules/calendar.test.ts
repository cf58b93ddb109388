import { describe, expect, it } from "vitest";
import type { Schema } from "@/api/types";
import { cellKey, entriesByCell } from "./entries";
import { addDays, dayKey, dayOf, daysOf, weekOf } from "./week";

const MONDAY = new Date(2026, 10, 16);

function slot(workflow: string, hour: number, minute: number, state?: Schema<"RunState">): Schema<"CalendarSlot"> {
  const at = new Date(2026, 10, 17, hour, minute).toISOString();
  const status = state === undefined ? "coming" : "started";
  return { workflow, key: "default", slot: at, local: at, status, run_state: state ?? null };
}

describe("weeks", () => {
  it("begin on Monday, also for a Sunday", () => {
    expect(dayKey(weekOf(new Date(2026, 10, 22, 23)))).toBe("2026-11-16");
    expect(dayKey(weekOf(MONDAY))).toBe("2026-11-16");
  });

  it("have seven days, across months", () => {
    expect(daysOf(addDays(MONDAY, 14)).map(dayKey).slice(-2)).toEqual(["2026-12-05", "2026-12-06"]);
  });

  it("are read from the address, and fall back to today", () => {
    expect(dayKey(dayOf("2026-11-18", MONDAY))).toBe("2026-11-18");
    expect(dayOf("nonsense", MONDAY)).toBe(MONDAY);
  });
});

describe("entriesByCell", () => {
  it("has one entry per workflow and hour, with the state that matters most", () => {
    const cells = entriesByCell([
      slot("digest", 6, 0, "success"),
      slot("report", 6, 5),
      slot("digest", 6, 10, "failed"),
      slot("digest", 7, 0, "success"),
    ]);
    const entries = cells.get(cellKey(new Date(2026, 10, 17), 6)) ?? [];
    expect(entries.map(({ workflow, slots, state }) => [workflow, slots.length, state])).toEqual([
      ["digest", 2, "failed"],
      ["report", 1, "coming"],
    ]);
    expect(cells.size).toBe(2);
  });
});
