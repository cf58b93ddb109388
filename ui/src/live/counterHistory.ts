/** What counters grew by in each second of the last minute: from the server at first, then as they are read. */

/** Seconds that are kept. */
export const SPAN = 60;
/** Seconds of the mean of what happens often. */
const CALM = 5;

export type Values = (number | null)[];

export class CounterHistory {
  private readonly grown = new Map<string, Map<number, number>>();
  private readonly filled = new Map<string, Map<number, number>>();
  private counters: Record<string, number> = {};
  /** The second of the first reading, which is known in part, and of the last one. */
  private first: number | null = null;
  private last: number | null = null;

  /** Takes what the server knows of the seconds before now. */
  fill(name: string, values: Values, now: Date): void {
    this.filled.set(name, atSeconds(values, now));
  }

  read(counters: Record<string, number>, now: Date): void {
    const second = secondOf(now);
    if (this.first === null || second - (this.last ?? second) > CALM) this.first = second;
    else {
      for (const [name, count] of Object.entries(counters)) {
        // A counter that went back belongs to a reactor that was loaded again.
        addAt(this.grown, name, second, Math.max(0, count - (this.counters[name] ?? count)));
      }
    }
    this.counters = counters;
    this.last = second;
  }

  /** In each of the full seconds up to the last reading, oldest first; null where not known. */
  history(name: string): Values {
    const end = this.last ?? 0;
    const grown = this.grown.get(name);
    const filled = this.filled.get(name);
    return Array.from({ length: SPAN }, (_, index) => {
      const second = end - SPAN + index;
      return this.first !== null && second > this.first ? (grown?.get(second) ?? 0) : (filled?.get(second) ?? null);
    });
  }
}

/** The values that end with the last full second before now. */
export function atSeconds(values: Values, now: Date): Map<number, number> {
  const first = secondOf(now) - values.length;
  return new Map(values.flatMap((value, index) => (value === null ? [] : [[first + index, value] as const])));
}

/** Adds to the count of a second, and forgets what is older than the span. */
export function addAt(counts: Map<string, Map<number, number>>, name: string, second: number, count: number): void {
  const seconds = counts.get(name) ?? new Map<number, number>();
  seconds.set(second, (seconds.get(second) ?? 0) + count);
  for (const old of seconds.keys()) {
    if (old >= second - SPAN - 1) break;
    seconds.delete(old);
  }
  counts.set(name, seconds);
}

/**
 * The rate of now. Of what happens often it is the mean of the last seconds; of what happens every few seconds that of
 * the whole minute, so that the figure stands still; 0 once it has been silent for twice as long as it ever was. Null
 * while nothing is known.
 */
export function currentRate(history: Values): number | null {
  const known = history.filter((count) => count !== null);
  if (known.length === 0) return null;
  const newest = known.slice(-CALM);
  const overall = mean(known);
  if (overall >= 1 || mean(newest) >= 1) return mean(newest);
  const fired = known.flatMap((count, index) => (count > 0 ? [index] : []));
  const pauses = fired.slice(1).map((index, before) => index - (fired[before] ?? 0));
  const silence = known.length - 1 - (fired.at(-1) ?? 0);
  return pauses.length > 0 && silence > 2 * Math.max(CALM, ...pauses) ? 0 : overall;
}

export function secondOf(time: Date): number {
  return Math.floor(time.getTime() / 1000);
}

function mean(values: number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
}
