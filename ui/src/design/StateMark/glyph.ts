/** One sign per state, so that a state can be told without its colour. */

const GLYPHS: Record<string, string> = {
  success: "✓",
  failed: "✕",
  running: "▸",
  queued: "…",
  scheduled: "·",
  skipped: "–",
  upstream_failed: "↑",
  up_for_retry: "↻",
  deferred: "z",
  cancelled: "⊘",
};

export function glyphOf(state: string): string {
  return GLYPHS[state] ?? "";
}
