/** Delays between attempts to connect: doubled from 0.5 s to 10 s, with jitter so that tabs do not return in step. */

const FIRST = 500;
const LONGEST = 10_000;

export function reconnectDelay(attempt: number, random: () => number = Math.random): number {
  const delay = Math.min(LONGEST, FIRST * 2 ** attempt);
  return delay * (0.75 + random() / 2);
}
