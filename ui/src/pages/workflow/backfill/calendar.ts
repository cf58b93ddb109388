/** A month as a calendar shows it: weeks of seven days, in the time zone of the reader. */

export interface CalendarDay {
  /** `2026-01-05`. */
  id: string;
  day: number;
  isInMonth: boolean;
}

/** The day of a time, as `2026-01-05`. */
export function dayOf(time: string | Date): string {
  const date = new Date(time);
  const pad = (part: number) => String(part).padStart(2, "0");
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

/** The month of a day, as `2026-01`, moved by some months. */
export function monthOf(day: string, by = 0): string {
  const [year = 0, month = 1] = day.split("-").map(Number);
  return dayOf(new Date(year, month - 1 + by, 1)).slice(0, 7);
}

/** The weeks of a month, from Monday on. */
export function weeksOf(month: string): CalendarDay[][] {
  const [year = 0, number = 1] = month.split("-").map(Number);
  const first = new Date(year, number - 1, 1);
  const offset = (first.getDay() + 6) % 7;
  const length = new Date(year, number, 0).getDate();
  const weeks = Math.ceil((offset + length) / 7);
  return Array.from({ length: weeks }, (_, week) =>
    Array.from({ length: 7 }, (_, weekday) => {
      const date = new Date(year, number - 1, 1 - offset + week * 7 + weekday);
      return { id: dayOf(date), day: date.getDate(), isInMonth: date.getMonth() === number - 1 };
    }),
  );
}

/** The first and the last instant of some days. */
export function boundsOf(from: string, to: string): { from: string; to: string } {
  return { from: new Date(`${from}T00:00:00`).toISOString(), to: new Date(`${to}T23:59:59.999`).toISOString() };
}

/** The number of times on each day. */
export function countByDay(times: string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const time of times) counts.set(dayOf(time), (counts.get(dayOf(time)) ?? 0) + 1);
  return counts;
}

export interface DayRange {
  from: string;
  /** `null` until the second day is chosen. */
  to: string | null;
}

/** What a calendar shows, and which days are chosen: `2026-01:2026-01-05..2026-01-09` in an address. */
export interface CalendarChoice {
  month: string;
  range: DayRange | null;
}

export function choiceText({ month, range }: CalendarChoice): string {
  if (range === null) return month;
  return `${month}:${range.from}${range.to === null ? "" : `..${range.to}`}`;
}

/** A text that means nothing chooses nothing, in the month of today. */
export function readChoice(text: string, today: string): CalendarChoice {
  const found = /^(\d{4}-\d{2})(?::(\d{4}-\d{2}-\d{2})(?:\.\.(\d{4}-\d{2}-\d{2}))?)?$/.exec(text);
  const [, month = monthOf(today), from, to = null] = found ?? [];
  return { month, range: from === undefined ? null : { from, to } };
}

/** The range after a click: the first click begins one, the second ends it, in either order. */
export function choose(range: DayRange | null, day: string): DayRange {
  if (range === null || range.to !== null) return { from: day, to: null };
  return day < range.from ? { from: day, to: range.from } : { from: range.from, to: day };
}
