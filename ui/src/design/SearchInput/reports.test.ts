import { expect, test } from "vitest";
import { Reports } from "./reports";

test("a report that comes back late does not count as a value from elsewhere", () => {
  const reports = new Reports();
  reports.add("or");
  reports.add("order");
  expect(reports.expected("")).toBe("order");
  expect(reports.takeBack("or")).toBe(true);
  expect(reports.expected("or")).toBe("order");
  expect(reports.takeBack("order")).toBe(true);
  expect(reports.takeBack("")).toBe(false);
});

test("a value from elsewhere ends the wait for reports", () => {
  const reports = new Reports();
  reports.add("order");
  expect(reports.takeBack("invoice")).toBe(false);
  expect(reports.expected("invoice")).toBe("invoice");
});
