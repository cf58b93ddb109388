import { describe, expect, it } from "vitest";
import { attentionOf } from "./attention";
import { CALM } from "./calm";

const AT = "2026-01-01T00:00:00Z";

describe("attentionOf", () => {
  it("is empty while all is well", () => {
    expect(attentionOf(CALM)).toEqual([]);
  });

  it("lists failures before what is late, each with a link to what explains it", () => {
    const items = attentionOf({
      ...CALM,
      late: { slots: [], runs: [{ run: "r2", workflow: "report", since: AT, reasons: ["Waits for pool x."] }] },
      failing: [{ workflow: "rates", run: "r1", at: AT, task: "fetch", reason: "no answer", failures: 3 }],
      dead_letter_sources: [{ kind: "accumulator", name: "orders", reactor: "shop", number: 3 }],
      waiting: [
        {
          workflow: "bills",
          waits_for: "code",
          runs: 2,
          run: "r3",
          task: "send",
          since: AT,
          reasons: ["No node has it."],
        },
      ],
      degraded: [{ kind: "reactor", name: "a/b", health: "degraded", since: null, reason: "feed is gone" }],
    });
    expect(items.map(({ kind, title, to }) => [kind, title, to])).toEqual([
      ["failed 3×", "rates · fetch", "/runs"],
      ["degraded", "reactor a/b", "/reactors/a%2Fb"],
      ["3 dead letters", "accumulator orders", "/reactors/shop"],
      ["waits for code", "bills · send (2 runs)", "/runs/r3"],
      ["waits", "report", "/runs/r2"],
    ]);
  });
});
