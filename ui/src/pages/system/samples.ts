/** Metrics over time: the newest answers of `/system/metrics`, and the rates between them. */

export interface Sample {
  /** Seconds since the epoch. */
  at: number;
  values: Record<string, number>;
}

export const KEPT = 150;

/** Adds an answer; one that is known already changes nothing. */
export function withSample(samples: Sample[], next: Sample): Sample[] {
  const last = samples.at(-1);
  if (last !== undefined && next.at <= last.at) return samples;
  return [...samples, next].slice(-KEPT);
}

/** How fast a counter grows, per second; null for the first sample, and where it was reset. */
export function rateOf(samples: Sample[], name: string): (number | null)[] {
  return samples.map((sample, index) => {
    const before = samples[index - 1];
    if (before === undefined) return null;
    const growth = (sample.values[name] ?? 0) - (before.values[name] ?? 0);
    return growth < 0 ? null : growth / (sample.at - before.at);
  });
}

export function levelOf(samples: Sample[], name: string): (number | null)[] {
  return samples.map(({ values }) => values[name] ?? null);
}
