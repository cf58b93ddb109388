import { expect, test } from "vitest";
import { latencyTone } from "./latency";

test("only slow firings are tinted", () => {
  expect([latencyTone(99e-6), latencyTone(100e-6), latencyTone(2e-3)]).toEqual([undefined, "amber", "red"]);
});
