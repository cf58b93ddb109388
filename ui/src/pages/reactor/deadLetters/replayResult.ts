/** What became of a dead letter that was processed again. */

import type { Schema } from "@/api/types";
import { formatDuration } from "@/format/duration";

type ReplayResult = Schema<"ReplayResult">;

export function isAccepted({ receipt, firing }: ReplayResult): boolean {
  if (receipt) return receipt.accepted;
  return firing ? firing.ok : true;
}

/** What became of a letter that was processed; that it failed again is an error. */
export function textOfAccepted(result: ReplayResult): string {
  if (!isAccepted(result)) throw new Error(resultText(result));
  return resultText(result);
}

export function resultText(result: ReplayResult): string {
  const { receipt, firing, run } = result;
  if (receipt?.accepted) return `The event was ${receipt.outcome}.`;
  if (receipt) return `The event failed again: ${receipt.reason ?? receipt.outcome}`;
  if (firing?.ok) return `The firing succeeded in ${formatDuration(firing.duration)}.`;
  if (firing) return "The firing failed again.";
  return run ? `Run ${run} was started.` : "The firing starts no run now.";
}
