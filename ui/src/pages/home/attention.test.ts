import { describe, expect, it } from "vitest";
import type { Schema } from "@/api/types";
import { attentionOf } from "./attention";

const CALM: Schema<"Overview"> = {
  at: "2026-01-01T00:00:00Z",
  active: {},
  oldest: [],
  failing: [],
  failed_runs: 0,
  late: { slots: [], runs: [] },
  reactors: 0,
  degraded: [],
  dead_letters: 0,
  failed_packages: [],
  upcoming: { items: [], more: false },
  ended: [],
  nodes: { leader: "a", alive: 1, silent: 0, dead: 0 },
};

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
      degraded: [{ kind: "reactor", name: "a/b", health: "degraded", since: null, reason: "feed is gone" }],
    });
    expect(items.map(({ kind, title, to }) => [kind, title, to])).toEqual([
      ["failed 3×", "rates · fetch", "/runs"],
      ["degraded", "reactor a/b", "/reactors/a%2Fb"],
      ["waits", "report", "/runs/r2"],
    ]);
  });
});
