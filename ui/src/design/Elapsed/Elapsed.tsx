import { formatDuration, formatElapsed } from "@/format/duration";
import { secondsBetween } from "@/format/time";
import { useNow } from "@/format/useNow";

/** How long something took, or has been going on for if it has not ended. */
export function Elapsed({ from, to }: { from: string | null; to: string | null }) {
  if (from === null) return <span aria-hidden="true">–</span>;
  return to === null ? <Growing from={from} /> : <span>{formatDuration(secondsBetween(from, to))}</span>;
}

function Growing({ from }: { from: string }) {
  const now = useNow();
  return <span>{formatElapsed(secondsBetween(from, null, now))}</span>;
}
