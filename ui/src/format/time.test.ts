import { expect, test } from "vitest";
import { formatTime } from "./time";

test("what happened within a millisecond of something else is told apart", () => {
  const at = new Date("2026-01-05T12:00:00.028Z");
  expect(formatTime(at, at, true)).toContain(":00.028");
  expect(formatTime(at, at)).not.toContain("028");
});
