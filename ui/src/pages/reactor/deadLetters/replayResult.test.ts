import { expect, test } from "vitest";
import { isAccepted, resultText } from "./replayResult";

test("a replayed event tells what its receipt says", () => {
  const failed = { accepted: false, sequence: 4, outcome: "dead_lettered" as const, reason: "expected Book" };
  expect(resultText({ receipt: failed })).toBe("The event failed again: expected Book");
  expect(isAccepted({ receipt: failed })).toBe(false);
  const emitted = { accepted: true, sequence: 5, outcome: "emitted" as const, reason: null };
  expect(resultText({ receipt: emitted })).toBe("The event was emitted.");
});

test("a replayed start tells its run", () => {
  expect(resultText({ run: "01ab" })).toBe("Run 01ab was started.");
  expect(resultText({ run: null })).toBe("The firing starts no run now.");
});
