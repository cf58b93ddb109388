/** Rates from counters that are read now and then: smoothed, so that a figure can be read while it changes. */

/** Seconds after which a new rate has mostly replaced the old one. */
const SMOOTHING = 2;

export type Counters = Record<string, number>;

export interface RateReading {
  /** Seconds, of any clock that only goes forward. */
  at: number;
  counters: Counters;
  /** Per second, by counter. */
  rates: Record<string, number>;
  /** Whether the rates come from more than one reading. */
  isSettled: boolean;
}

export function firstReading(counters: Counters, at: number): RateReading {
  return { at, counters, rates: mapValues(counters, () => 0), isSettled: false };
}

export function nextReading(before: RateReading, counters: Counters, at: number): RateReading {
  const elapsed = at - before.at;
  if (elapsed <= 0) return before;
  const weight = before.isSettled ? 1 - Math.exp(-elapsed / SMOOTHING) : 1;
  const rates = mapValues(counters, (count, name) => {
    // A counter that went back belongs to a reactor that was loaded again.
    const passed = Math.max(0, count - (before.counters[name] ?? count));
    const old = before.rates[name] ?? 0;
    const rate = old + (passed / elapsed - old) * weight;
    return rate < 0.005 ? 0 : rate;
  });
  return { at, counters, rates, isSettled: true };
}

function mapValues(counters: Counters, map: (count: number, name: string) => number): Record<string, number> {
  return Object.fromEntries(Object.entries(counters).map(([name, count]) => [name, map(count, name)]));
}
