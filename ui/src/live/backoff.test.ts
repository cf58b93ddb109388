import { expect, test } from "vitest";
import { reconnectDelay } from "./backoff";

test("delays grow from half a second to ten, with jitter of a quarter", () => {
  const middle = () => 0.5;
  expect([0, 1, 2, 10].map((attempt) => reconnectDelay(attempt, middle))).toEqual([500, 1000, 2000, 10_000]);
  expect(reconnectDelay(0, () => 0)).toBe(375);
  expect(reconnectDelay(0, () => 1)).toBe(625);
});
