import { expect, test } from "vitest";
import { filterOf, isFiltered, toggleState } from "./filter";

const NONE = { q: "", workflow: "", state: "", cause: "", from: "", to: "", unresolved: "" };

test("an empty search asks for everything", () => {
  expect(filterOf(NONE)).toEqual({});
  expect(isFiltered(NONE)).toBe(false);
  expect(isFiltered({ ...NONE, state: "nonsense", from: "soon" })).toBe(false);
});

test("unresolved failures are a filter", () => {
  expect(filterOf({ ...NONE, unresolved: "true" })).toEqual({ unresolved: true });
});

test("a day is a whole day", () => {
  const { from = "", to = "" } = filterOf({ ...NONE, from: "2026-01-05", to: "2026-01-05" });
  expect(Date.parse(to) - Date.parse(from)).toBe(24 * 3600 * 1000 - 1);
});

test("states are switched on and off, in a fixed order", () => {
  expect(toggleState("failed", "running")).toBe("running,failed");
  expect(toggleState("running,failed", "failed")).toBe("running");
});
