import { Badge } from "@/design/Badge/Badge";
import { Button } from "@/design/Button/Button";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { formatCount } from "@/format/number";
import type { LiveReactor } from "../useLiveReactor";

/** Health, pause with what is buffered, and whether the page still follows the reactor. */
export function HealthMark({ reactor }: { reactor: LiveReactor }) {
  const { state, connection, retryNow } = reactor;
  return (
    <>
      {!(state.paused && state.health === "live") && <StateBadge state={state.health} />}
      {state.paused && <Badge tone="violet">paused · {formatCount(state.buffered)} buffered</Badge>}
      {connection !== "live" && connection !== "connecting" && (
        <span role="status">
          <Badge tone="amber">not live: this is the last known state</Badge>
          {connection === "reconnecting" && (
            <Button look="quiet" onClick={retryNow}>
              Connect now
            </Button>
          )}
        </span>
      )}
    </>
  );
}

/** Why a reactor is not live, in a sentence; null if it is. */
export function healthReason({ health, waiting, disconnected, accumulators }: LiveReactor["state"]): string | null {
  const reasons = Object.values(accumulators).flatMap(({ name, reason }) => (reason ? [`${name}: ${reason}`] : []));
  const because = reasons.length > 0 ? ` ${reasons.join(". ")}` : "";
  if (health === "degraded") return `It fires with the last values of ${disconnected.join(", ")}.${because}`;
  if (health === "warming") return `It waits for ${waiting.join(", ")}.${because}`;
  if (health === "failed") return `The supervisor gave it up; restart it once the cause is gone.${because}`;
  return reasons.length > 0 ? reasons.join(". ") : null;
}
