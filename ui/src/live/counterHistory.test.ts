import { describe, expect, it } from "vitest";
import { CounterHistory, currentRate, SPAN } from "./counterHistory";

const START = Date.parse("2026-01-01T00:00:00Z");
const at = (second: number) => new Date(START + second * 1000 + 300);

/** A minute in which something happens every so many seconds, until some seconds before the end. */
function every(seconds: number, silence = 0): number[] {
  return Array.from({ length: SPAN }, (_, index) => (index % seconds === 0 && index < SPAN - silence ? 1 : 0));
}

describe("a history of counters", () => {
  it("begins with what the server knows", () => {
    const history = new CounterHistory();
    history.fill("a", Array(SPAN).fill(7), at(0));
    history.read({ a: 100 }, at(0));
    expect(history.history("a")).toEqual(Array(SPAN).fill(7));
    expect(currentRate(history.history("a"))).toBe(7);
  });

  it("goes on with what was read, and a counter that falls counts nothing", () => {
    const history = new CounterHistory();
    history.fill("a", [1, 2, 3], at(0));
    for (const [second, a] of [100, 104, 110, 5, 6].entries()) history.read({ a }, at(second));
    expect(history.history("a").slice(-7)).toEqual([1, 2, 3, null, 4, 6, 0]);
  });
});

describe("the rate of now", () => {
  it("is steady for what happens every few seconds", () => {
    expect(currentRate(every(5))).toBeCloseTo(0.2);
    expect(currentRate(every(5, 4))).toBeCloseTo(0.2);
    expect(currentRate(every(20, 15))).toBeCloseTo(0.05);
  });

  it("falls to zero at once when what happened often has stopped", () => {
    expect(currentRate([...Array(SPAN - 5).fill(70), 0, 0, 0, 0, 0])).toBe(0);
    expect(currentRate([...Array(SPAN).fill(null), ...Array(5).fill(70), ...Array(55).fill(0)])).toBe(0);
    expect(currentRate(every(5, 15))).toBe(0);
  });

  it("is the mean of the last seconds for what happens often", () => {
    expect(currentRate([...Array(SPAN - 5).fill(10), 20, 20, 20, 20, 20])).toBe(20);
    expect(currentRate(Array(SPAN).fill(null))).toBeNull();
  });
});
