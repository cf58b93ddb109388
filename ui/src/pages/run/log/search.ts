/** Searching and filtering lines of a log. */

import { plainText } from "./ansi";
import type { LogLine } from "./logBuffer";

const SEVERITY: Record<string, number> = { debug: 10, info: 20, warning: 30, error: 40, critical: 50 };

/** Levels that the filter offers: that one and everything more severe. */
export const LEVELS = ["debug", "info", "warning", "error"];

export function isAtLeast(line: LogLine, level: string): boolean {
  return (SEVERITY[line.level.toLowerCase()] ?? 20) >= (SEVERITY[level] ?? 0);
}

/** A line as it is copied and searched: without colours. */
export function textOf(line: Written): string {
  return plainText(writtenText(line));
}

type Written = Pick<LogLine, "message" | "logger"> & Partial<Pick<LogLine, "fields">>;

/** A line as it was written, with its logger and its fields. */
export function writtenText(line: Written): string {
  const fields = Object.entries(line.fields ?? {}).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  return [line.logger ? `${line.logger}:` : "", line.message, ...fields].filter(Boolean).join(" ");
}

/** A line as it is copied and downloaded, with its time and level. */
export function recordOf(line: LogLine): string {
  const element = line.index === null ? "" : `[${line.index}] `;
  return `${line.at} ${line.level.toUpperCase().padEnd(7)} ${element}${textOf(line)}`;
}

/** The numbers of the lines that contain a text, in letters of either case. */
export function findMatches(lines: LogLine[], text: string): number[] {
  if (text === "") return [];
  const wanted = text.toLowerCase();
  return lines.flatMap((line, index) => (textOf(line).toLowerCase().includes(wanted) ? [index] : []));
}

/** A text in parts, those that match marked. */
export function splitMatches(text: string, wanted: string): { text: string; isMatch: boolean }[] {
  if (wanted === "") return [{ text, isMatch: false }];
  const parts: { text: string; isMatch: boolean }[] = [];
  const lower = text.toLowerCase();
  const needle = wanted.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, from)) {
    if (at > from) parts.push({ text: text.slice(from, at), isMatch: false });
    parts.push({ text: text.slice(at, at + needle.length), isMatch: true });
    from = at + needle.length;
  }
  if (from < text.length) parts.push({ text: text.slice(from), isMatch: false });
  return parts;
}
