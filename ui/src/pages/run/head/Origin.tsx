import { Link } from "@tanstack/react-router";
import type { Schema } from "@/api/types";
import { Time } from "@/design/Time/Time";

/** What started a run, with a link to it: a slot of the schedule, a backfill, a trigger, a reactor, a person. */
export function Origin({ run }: { run: Schema<"RunInfo"> }) {
  switch (run.origin) {
    case "schedule":
      return run.slot === null ? "schedule" : <Slot slot={run.slot} />;
    case "backfill":
      return (
        <span>
          <Link to="/backfills">backfill</Link>
          {run.slot !== null && (
            <>
              {" "}
              of <Slot slot={run.slot} />
            </>
          )}
        </span>
      );
    case "firing":
      return (
        <span>
          firing{run.cause && " of "}
          {run.cause && (
            <Link to="/reactors/$name" params={{ name: run.cause }}>
              {run.cause}
            </Link>
          )}
        </span>
      );
    case "trigger":
      return (
        <span>
          <Link to="/triggers">trigger</Link> {run.cause}
        </span>
      );
    case "task":
      return (
        <span>
          task{run.cause && " of "}
          {run.cause && (
            <Link to="/workflows/$name" params={{ name: run.cause }}>
              {run.cause}
            </Link>
          )}
        </span>
      );
    case "manual":
      return "a person or program";
    default:
      return run.origin;
  }
}

function Slot({ slot }: { slot: string }) {
  return (
    <span>
      slot <Time at={slot} />
    </span>
  );
}
