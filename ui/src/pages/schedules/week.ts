/** Weeks of the calendar, in the time zone of the browser. They begin on Monday. */

const DAYS = 7;

/** The Monday of the week that a day is in, at midnight. */
export function weekOf(day: Date): Date {
  const sinceMonday = (day.getDay() + 6) % DAYS;
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() - sinceMonday);
}

/** The days of a week from its Monday on; by date, because a day may have 23 or 25 hours. */
export function daysOf(monday: Date): Date[] {
  return Array.from({ length: DAYS }, (_, index) => addDays(monday, index));
}

export function addDays(day: Date, count: number): Date {
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() + count);
}

/** "2026-11-16", for the address. */
export function dayKey(day: Date): string {
  const two = (number: number) => String(number).padStart(2, "0");
  return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}`;
}

/** The day of a key; today for a key that is none. */
export function dayOf(key: string, today: Date): Date {
  const day = new Date(`${key}T00:00`);
  return Number.isNaN(day.getTime()) ? today : day;
}
