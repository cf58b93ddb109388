import { expect, test } from "vitest";
import { firstReading, nextReading } from "./rates";

test("the second reading gives the rate, later ones move it slowly, and silence lets it decay", () => {
  let reading = nextReading(firstReading({ a: 100 }, 0), { a: 125 }, 0.25);
  expect(reading.rates.a).toBe(100);
  reading = nextReading(reading, { a: 150 }, 0.35);
  expect(reading.rates.a).toBeGreaterThan(100);
  expect(reading.rates.a).toBeLessThan(120);
  for (let second = 1; second < 30; second++) reading = nextReading(reading, { a: 150 }, second);
  expect(reading.rates.a).toBe(0);
});

test("a counter that starts again counts nothing, and one that is new neither", () => {
  const before = nextReading(firstReading({ a: 100 }, 0), { a: 100 }, 1);
  const { rates } = nextReading(before, { a: 3, b: 7 }, 2);
  expect(rates).toEqual({ a: 0, b: 0 });
});
