import { expect, test, vi } from "vitest";
import { readWhole } from "./wholeLists";

const PAGES = [
  { items: ["a", "b"], total: 3, next: "after-b" },
  { items: ["c"], total: 3, next: null },
];

test("a list of several pages is read to its end", async () => {
  const read = vi.fn(async ({ cursor }: { cursor: string | null }) => ({ data: PAGES[cursor === null ? 0 : 1] }));
  expect(await readWhole(read)).toEqual({ items: ["a", "b", "c"], total: 3 });
  expect(read.mock.calls.map(([query]) => query.cursor)).toEqual([null, "after-b"]);
});
