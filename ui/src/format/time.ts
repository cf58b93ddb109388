/** Times of the API, as people read them in their own time zone. */

import { formatElapsed } from "./duration";

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const EXACT = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  hour12: false,
});
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const DAY_AND_YEAR = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

/** "12:43:11" today, "15 Nov 12:43:11" on another day, with the year in another year; with milliseconds if asked. */
export function formatTime(time: string | Date, now: Date = new Date(), isExact = false): string {
  const date = new Date(time);
  const clock = (isExact ? EXACT : CLOCK).format(date);
  if (date.toDateString() === now.toDateString()) return clock;
  const day = date.getFullYear() === now.getFullYear() ? DAY : DAY_AND_YEAR;
  return `${day.format(date)} ${clock}`;
}

/** With date, seconds and time zone, for tooltips. */
export function formatFullTime(time: string | Date): string {
  return FULL.format(new Date(time));
}

/** "4 s ago", "in 3m 20s"; what a server whose clock is ahead did just now is "now". */
export function formatRelative(time: string | Date, now: Date): string {
  const seconds = (new Date(time).getTime() - now.getTime()) / 1000;
  if (seconds > -1 && seconds < 1.5) return "now";
  return seconds > 0 ? `in ${formatElapsed(seconds)}` : `${formatElapsed(-seconds)} ago`;
}

/** Seconds from one time to another, or to now. */
export function secondsBetween(start: string, end: string | null | undefined, now: Date = new Date()): number {
  return ((end ? new Date(end) : now).getTime() - new Date(start).getTime()) / 1000;
}
