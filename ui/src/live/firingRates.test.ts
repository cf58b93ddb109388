import { describe, expect, it } from "vitest";
import { SPAN } from "./counterHistory";
import type { FeedEvent } from "./feed";
import { FiringRates } from "./firingRates";

const START = Date.parse("2026-01-01T00:00:00Z");

/** An event of a server whose clock is wrong, and when it arrives. */
function fired(second: number, firings: number): [FeedEvent, Date] {
  const event = { id: "1", type: "reactor.fired", at: "2031-07-01T12:00:00Z", tenant: null, reactor: "market" };
  return [{ ...event, firings, total: 1000 + firings }, new Date(START + second * 1000 + 300)];
}

describe("FiringRates", () => {
  it("adds up the firings of each second", () => {
    const rates = new FiringRates();
    rates.begin(new Date(START));
    rates.note(...fired(0, 17));
    rates.note(...fired(0, 3));
    rates.note(...fired(2, 5));
    const history = rates.history("market", new Date(START + 3000));
    expect(history).toHaveLength(SPAN);
    expect(history.slice(-4)).toEqual([null, null, 0, 5]);
    expect(rates.total("market")).toBe(1005);
    expect(rates.total("other")).toBeNull();
  });

  it("forgets what is older than it shows, and knows nothing of other reactors", () => {
    const rates = new FiringRates();
    rates.begin(new Date(START));
    rates.note(...fired(0, 17));
    rates.note(...fired(SPAN + 5, 1));
    expect(rates.history("market", new Date(START + (SPAN + 6) * 1000))).toEqual([...Array(SPAN - 1).fill(0), 1]);
    expect(rates.history("other", new Date(START + 2000)).at(-1)).toBe(0);
  });

  it("knows nothing of the time without a connection", () => {
    const rates = new FiringRates();
    rates.begin(new Date(START));
    rates.note(...fired(0, 7));
    rates.end(new Date(START + 1000));
    rates.end(new Date(START + 2000));
    rates.begin(new Date(START + 2000));
    rates.note(...fired(2, 5000));
    rates.note(...fired(5, 9));
    expect(rates.history("market", new Date(START + 6000)).slice(-7)).toEqual([null, null, null, null, null, 0, 9]);
  });

  it("shows what the server knows of the time before, and of a lost connection", () => {
    const rates = new FiringRates();
    rates.fill({ market: [1, 2, null, 4] }, new Date(START));
    expect(rates.history("market", new Date(START)).slice(-5)).toEqual([null, 1, 2, null, 4]);
    rates.begin(new Date(START));
    rates.note(...fired(1, 7));
    rates.end(new Date(START + 2000));
    rates.begin(new Date(START + 4000));
    rates.fill({ market: [4, 5, 6, 7, 8, 9] }, new Date(START + 6000));
    expect(rates.history("market", new Date(START + 7000)).slice(-7)).toEqual([4, 7, 6, 7, 8, 9, 0]);
  });

  it("UD-20: stands still while there is no connection", () => {
    const rates = new FiringRates();
    rates.begin(new Date(START));
    for (let second = 1; second < 5; second++) rates.note(...fired(second, 70));
    rates.end(new Date(START + 5000));
    const kept = rates.history("market", new Date(START + 5000));
    expect(kept.slice(-4)).toEqual([70, 70, 70, 70]);
    expect(rates.history("market", new Date(START + 60_000))).toEqual(kept);
  });
});
