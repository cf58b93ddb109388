import { expect, test } from "vitest";
import { boundsOf, choiceText, choose, countByDay, dayOf, monthOf, readChoice, weeksOf } from "./calendar";

test("a month has whole weeks from Monday on", () => {
  const weeks = weeksOf("2026-11");
  expect(weeks).toHaveLength(6);
  expect(weeks.every((week) => week.length === 7)).toBe(true);
  expect(weeks[0]?.[0]?.id).toBe("2026-10-26");
  expect(weeks.flat().filter((day) => day.isInMonth)).toHaveLength(30);
});

test("months move across years", () => {
  expect(monthOf("2026-01-15", -1)).toBe("2025-12");
  expect(monthOf("2026-12", 1)).toBe("2027-01");
});

test("two clicks choose a range, in either order, and a third one begins anew", () => {
  const first = choose(null, "2026-01-05");
  expect(first).toEqual({ from: "2026-01-05", to: null });
  expect(choose(first, "2026-01-03")).toEqual({ from: "2026-01-03", to: "2026-01-05" });
  expect(choose({ from: "2026-01-03", to: "2026-01-05" }, "2026-01-09")).toEqual({ from: "2026-01-09", to: null });
});

test("slots are counted on the day of the reader", () => {
  const noon = new Date(2026, 0, 5, 12).toISOString();
  expect(countByDay([noon, noon]).get("2026-01-05")).toBe(2);
  const { from, to } = boundsOf("2026-01-05", "2026-01-05");
  expect([dayOf(from), dayOf(to)]).toEqual(["2026-01-05", "2026-01-05"]);
});

test.each([
  { month: "2026-01", range: null },
  { month: "2026-02", range: { from: "2026-01-05", to: null } },
  { month: "2026-01", range: { from: "2026-01-05", to: "2026-01-09" } },
])("a choice of days survives its way through the address: %o", (choice) => {
  expect(readChoice(choiceText(choice), "2026-11-16")).toEqual(choice);
});

test("an address without a choice shows the month of today", () => {
  for (const text of ["", "soon", "2026-01:soon"])
    expect(readChoice(text, "2026-11-16")).toEqual({ month: "2026-11", range: null });
});
