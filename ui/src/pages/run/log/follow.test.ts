import { expect, test } from "vitest";
import { leavesEnd } from "./follow";

const view = (scrollTop: number, scrollHeight: number) => ({ scrollTop, scrollHeight, clientHeight: 400 });

test("a scroll upwards leaves the end", () => {
  expect(leavesEnd(600, view(500, 1000))).toBe(true);
});

test("a log that grows, one that shrinks, and one that goes to its end are still followed", () => {
  expect(leavesEnd(600, view(600, 1200))).toBe(false);
  expect(leavesEnd(600, view(300, 700))).toBe(false);
  expect(leavesEnd(600, view(780, 1200))).toBe(false);
});
