/** An overview without anything that needs a person, for tests. */

import type { Schema } from "@/api/types";

export const CALM: Schema<"Overview"> = {
  at: "2026-01-01T00:00:00Z",
  active: {},
  oldest: [],
  failing: [],
  failed_runs: 0,
  late: { slots: [], runs: [] },
  reactors: 0,
  degraded: [],
  dead_letters: 0,
  dead_letter_sources: [],
  waiting: [],
  failed_packages: [],
  upcoming: { items: [], more: false },
  ended: [],
  nodes: { leader: "a", alive: 1, silent: 0, dead: 0 },
};
