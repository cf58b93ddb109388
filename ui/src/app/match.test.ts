import { expect, test } from "vitest";
import { matchScore } from "./match";

test("what contains the text wins over letters in order, and those over nothing", () => {
  const scores = ["nightly_report", "new_import", "market"].map((name) => matchScore(name, "report"));
  expect(scores[0]).toBeGreaterThan(900);
  expect(scores[1]).toBe(0);
  expect(matchScore("nightly_report", "nr")).toBeGreaterThan(matchScore("corner", "nr"));
});
