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
            <Link
              to="/reactors/$name"
              params={{ name: run.cause }}
              search={run.firing ? { firing: run.firing } : {}}
              title={run.firing ? `Firing ${run.firing}` : undefined}
            >
              {run.cause}
            </Link>
          )}
          {run.cause_key && ` for key ${run.cause_key}`}
        </span>
      );
    case "trigger":
      return (
        <span>
          <Link to="/triggers">trigger</Link> {run.cause}
        </span>
      );
    case "handler":
    case "task":
      return (
        <span>
          {run.origin === "handler" ? "end" : "task"}
          {run.cause && " of "}
          {run.cause &&
            (run.parent ? (
              <Link to="/runs/$run" params={{ run: run.parent }} title={`Run ${run.parent}`}>
                {run.cause}
              </Link>
            ) : (
              <Link to="/workflows/$name" params={{ name: run.cause }}>
                {run.cause}
              </Link>
            ))}
        </span>
      );
    case "manual":
      return actorName(run.actor);
    default:
      return run.origin;
  }
}

/** Who started a run by hand; a program on the node itself has no name but that of its process. */
function actorName(actor: string | null | undefined): string {
  const [kind, name] = (actor ?? "").split(/:(.*)/);
  if (kind === "account" && name) return name;
  if (kind === "key" && name) return `key ${name}`;
  return actor === "local" ? "a person at the node" : "a program on a node";
}

function Slot({ slot }: { slot: string }) {
  return (
    <span>
      slot <Time at={slot} />
    </span>
  );
}
