import { describe, expect, it } from "vitest";
import { KEPT, levelOf, rateOf, type Sample, withSample } from "./samples";

const sample = (at: number, fires: number): Sample => ({ at, values: { fires } });

describe("samples", () => {
  it("gives the growth of a counter per second", () => {
    expect(rateOf([sample(0, 10), sample(2, 30), sample(4, 31)], "fires")).toEqual([null, 10, 0.5]);
  });

  it("has no rate where a server was restarted", () => {
    expect(rateOf([sample(0, 10), sample(2, 3)], "fires")).toEqual([null, null]);
  });

  it("has no value for a metric that is not there", () => {
    expect(levelOf([sample(0, 1)], "other")).toEqual([null]);
  });

  it("keeps the newest, each once", () => {
    let samples: Sample[] = [];
    for (let at = 0; at < KEPT + 5; at++) samples = withSample(withSample(samples, sample(at, at)), sample(at, at));
    expect(samples).toHaveLength(KEPT);
    expect(samples[0]?.at).toBe(5);
  });
});
