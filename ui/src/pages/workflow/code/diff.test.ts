import { expect, test } from "vitest";
import { diffLines, foldSame } from "./diff";

const short = (before: string, after: string) =>
  diffLines(before, after).map(({ kind, text }) => `${{ same: " ", removed: "-", added: "+" }[kind]}${text}`);

test("changed lines are removed and added, others are the same", () => {
  expect(short("a\nb\nc\n", "a\nB\nc\nd\n")).toEqual([" a", "-b", "+B", " c", "+d"]);
});

test("equal texts have no change, and empty ones no line", () => {
  expect(short("a\nb\n", "a\nb\n")).toEqual([" a", " b"]);
  expect(short("", "a\n")).toEqual(["+a"]);
  expect(short("a\n", "")).toEqual(["-a"]);
  expect(short("", "")).toEqual([]);
});

test("every difference rebuilds both texts", () => {
  let seed = 7;
  const random = (below: number) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return seed % below;
  };
  for (let round = 0; round < 200; round++) {
    const make = () => Array.from({ length: random(12) }, () => "abc"[random(3)]);
    const [before, after] = [make(), make()];
    const lines = diffLines(before.join("\n"), after.join("\n"));
    expect(lines.filter((line) => line.kind !== "added").map((line) => line.text)).toEqual(before);
    expect(lines.filter((line) => line.kind !== "removed").map((line) => line.text)).toEqual(after);
  }
});

test("line numbers count in each text", () => {
  expect(diffLines("a\nb", "b").map(({ before, after }) => [before, after])).toEqual([
    [1, null],
    [2, 1],
  ]);
});

test("lines far from a change are folded", () => {
  const before = Array.from({ length: 30 }, (_, index) => `line ${index}`).join("\n");
  const parts = foldSame(diffLines(before, before.replace("line 15", "changed")), 2);
  expect(parts.filter((part) => part.kind === "gap").map((part) => part.kind === "gap" && part.count)).toEqual([
    13, 12,
  ]);
  expect(parts).toHaveLength(2 + 2 + 2 + 2);
});

test("texts that differ too much are one replaced block between their equal ends", () => {
  const lines = (name: string) => ["head", ...Array.from({ length: 1500 }, (_, index) => `${name} ${index}`), "tail"];
  const found = diffLines(lines("old").join("\n"), lines("new").join("\n"));
  expect(found.map(({ kind }) => kind)).toEqual([
    "same",
    ...Array(1500).fill("removed"),
    ...Array(1500).fill("added"),
    "same",
  ]);
  expect(found.at(-1)).toEqual({ kind: "same", text: "tail", before: 1502, after: 1502 });
});
