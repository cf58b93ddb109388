import { expect, test } from "vitest";
import { edgesOf, upstreamOf } from "./structure";

const SPEC = {
  name: "report",
  tasks: [
    { name: "judge" },
    { name: "short", edges: [{ source: "judge", parameter: "judge", takes: ["Quiet", "Slow"] }] },
    { name: "tidy", edges: [{ source: "short" }, { source: "judge" }] },
  ],
};

test("edges have the variants that they take, and are dashed if they only order", () => {
  expect(edgesOf(SPEC)).toEqual([
    { source: "judge", target: "short", label: "Quiet or Slow", isDashed: false },
    { source: "short", target: "tidy", label: undefined, isDashed: true },
    { source: "judge", target: "tidy", label: undefined, isDashed: true },
  ]);
});

test("a task waits for the sources of its edges", () => {
  expect(upstreamOf(edgesOf(SPEC)).get("tidy")).toEqual(["short", "judge"]);
});
