import { Link } from "@tanstack/react-router";
import { api } from "@/api/client";
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
      return <Reactor workflow={run.workflow} />;
    case "trigger":
      return <Link to="/triggers">trigger</Link>;
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

/** The reactors whose firings start the workflow. */
function Reactor({ workflow }: { workflow: string }) {
  const { data } = api.useQuery("get", "/api/v1/workflows/{name}", { params: { path: { name: workflow } } });
  const names = [...new Set(data?.triggers.flatMap(({ reactor }) => (reactor ? [reactor] : [])))];
  return (
    <span>
      firing
      {names.length > 0 && " of "}
      {names.map((name) => (
        <Link key={name} to="/reactors/$name" params={{ name }}>
          {name}
        </Link>
      ))}
    </span>
  );
}
