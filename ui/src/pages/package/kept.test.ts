import { expect, it } from "vitest";
import { type KeptVersion, keptOf } from "./kept";

const kept = (version: string, digest: string, published = false): KeptVersion => ({
  version,
  digest,
  published,
  at: "2026-01-31T06:00:00Z",
  unfinished_runs: 0,
  size: 1410,
});

it("offers every kept version but the published one, and marks what is loaded meanwhile", () => {
  const versions = keptOf([kept("0.1.0", "a", true), kept("0.3.0", "c"), kept("0.2.0", "b")], "0.3.0");
  expect(versions.map(({ version, loaded, canReturn }) => [version, loaded, canReturn])).toEqual([
    ["0.1.0", false, false],
    ["0.3.0", true, true],
    ["0.2.0", false, true],
  ]);
});

it("offers a version with two archives once, and the published one not even by its first archive", () => {
  const versions = [kept("0.2.0", "d", true), kept("0.2.0", "c"), kept("0.1.0", "b"), kept("0.1.0", "a")];
  expect(keptOf(versions, "0.2.0").map(({ canReturn }) => canReturn)).toEqual([false, false, true, false]);
});

it("offers all of a package that is withdrawn", () => {
  expect(keptOf([kept("0.2.0", "b"), kept("0.1.0", "a")], null).every(({ canReturn }) => canReturn)).toBe(true);
});
