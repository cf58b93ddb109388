import { expect, test } from "vitest";
import type { LogLine } from "./logBuffer";
import { findMatches, isAtLeast, recordOf, splitMatches } from "./search";

function line(message: string, other: Partial<LogLine> = {}): LogLine {
  return {
    at: "2026-01-05T10:00:00Z",
    level: "info",
    message,
    fields: {},
    stream: "log",
    task: "fetch",
    attempt: 1,
    index: null,
    logger: "",
    ...other,
  };
}

test("a search finds letters of either case, in messages and in fields", () => {
  const lines = [line("Fetched 12 rows"), line("done", { fields: { table: "Rows" } }), line("tidy")];
  expect(findMatches(lines, "rows")).toEqual([0, 1]);
  expect(findMatches(lines, "")).toEqual([]);
});

test("a line of a logger begins with its name", () => {
  expect(recordOf(line("read 3 rows", { logger: "warehouse" }))).toContain("INFO    warehouse: read 3 rows");
});

test("every match of a line is marked, and no text is lost", () => {
  const parts = splitMatches("row Row throw", "row");
  expect(parts.filter((part) => part.isMatch).map((part) => part.text)).toEqual(["row", "Row", "row"]);
  expect(parts.map((part) => part.text).join("")).toBe("row Row throw");
});

test("a level stands for itself and everything more severe", () => {
  expect(isAtLeast(line("x", { level: "error" }), "warning")).toBe(true);
  expect(isAtLeast(line("x", { level: "info" }), "warning")).toBe(false);
});

test("a copied line has its time, level and element", () => {
  expect(recordOf(line("cleaned", { index: 7, fields: { rows: 3 } }))).toBe(
    "2026-01-05T10:00:00Z INFO    [7] cleaned rows=3",
  );
});
