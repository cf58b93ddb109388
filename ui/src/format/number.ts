/** Numbers, as people read them. */

const GROUPED = new Intl.NumberFormat("en");
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB"];

export function formatCount(value: number): string {
  return GROUPED.format(value);
}

/** "1.2K", "3.4M": for labels with little room. */
export function formatCompact(value: number): string {
  return COMPACT.format(value);
}

/** "0.5/s", "93/s", "1.2K/s"; "–" for what is not known. */
export function formatRate(perSecond: number | null): string {
  if (perSecond === null) return "–";
  if (perSecond === 0) return "0/s";
  if (perSecond < 0.1) return `${(perSecond * 60).toFixed(1)}/min`;
  return `${perSecond < 10 ? perSecond.toFixed(1) : formatCompact(Math.round(perSecond))}/s`;
}

export function formatBytes(bytes: number): string {
  const unit = bytes < 1 ? 0 : Math.min(BYTE_UNITS.length - 1, Math.floor(Math.log10(bytes) / 3));
  const value = bytes / 1000 ** unit;
  return `${unit > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} ${BYTE_UNITS[unit]}`;
}

export function plural(count: number, noun: string, nouns = `${noun}s`): string {
  return `${formatCount(count)} ${count === 1 ? noun : nouns}`;
}
