/** Durations in seconds, as people read them. */

const UNITS: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "m"],
];

/** "420 ns", "17 µs", "3.2 ms", "4.1 s", "2m 05s", "3h 12m", "4d 2h". */
export function formatDuration(seconds: number): string {
  if (seconds < 0) return `-${formatDuration(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 1e-6) return `${Math.round(seconds * 1e9)} ns`;
  if (seconds < 1e-3) return `${significant(seconds * 1e6)} µs`;
  if (seconds < 1) return `${significant(seconds * 1e3)} ms`;
  if (seconds < 60) return `${significant(seconds)} s`;
  return inTwoUnits(seconds);
}

/** Whole seconds for something that still grows, so that the text does not flicker: "4 s". */
export function formatElapsed(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  return whole < 60 ? `${whole} s` : inTwoUnits(whole);
}

function significant(value: number): string {
  return value < 9.95 ? value.toFixed(1) : String(Math.round(value));
}

function inTwoUnits(seconds: number): string {
  const total = Math.round(seconds);
  if (total < 3_600) return `${Math.floor(total / 60)}m ${String(total % 60).padStart(2, "0")}s`;
  const index = total >= 86_400 ? 0 : 1;
  const [size, unit] = UNITS[index] as [number, string];
  const [nextSize, nextUnit] = UNITS[index + 1] as [number, string];
  return `${Math.floor(total / size)}${unit} ${Math.floor((total % size) / nextSize)}${nextUnit}`;
}
