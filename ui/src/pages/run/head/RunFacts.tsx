import { Link } from "@tanstack/react-router";
import { Fragment, type ReactNode } from "react";
import type { Schema } from "@/api/types";
import { CopyButton } from "@/design/CopyButton/CopyButton";
import { Elapsed } from "@/design/Elapsed/Elapsed";
import { Facts } from "@/design/Facts/Facts";
import { Fold } from "@/design/Fold/Fold";
import { RunId } from "@/design/RunId/RunId";
import { Time } from "@/design/Time/Time";
import { hasEnded } from "../state";
import { Handlers } from "./Handlers";
import { NoteEditor } from "./NoteEditor";
import { Origin } from "./Origin";
import styles from "./RunFacts.module.css";

/** What a run is: what started it, with which params, for how long, in which version, and the note on it. */
export function RunFacts({ run, handlers }: { run: Schema<"RunDetails">; handlers: Schema<"HandlerRun">[] }) {
  const facts: [string, ReactNode][] = [
    ["Workflow", <WorkflowVersion key="workflow" run={run} />],
    [
      "Run",
      <span key="id" className={styles.id}>
        <RunId id={run.id} />
        <CopyButton text={run.id} label="Copy the id of the run" />
      </span>,
    ],
    ["Started by", <Origin key="origin" run={run} />],
    ["Created", <Time key="created" at={run.created_at} />],
    [hasEnded(run.state) ? "Took" : "Running for", <Elapsed key="took" from={run.started_at} to={run.ended_at} />],
    ...(handlers.length > 0 ? [handlersFact(handlers)] : []),
    ["Params", <Params key="params" params={run.params} />],
    ["Note", <NoteEditor key="note" run={run.id} note={run.note} />],
  ];
  return (
    <div className={styles.facts}>
      <Facts facts={facts} />
    </div>
  );
}

function handlersFact(handlers: Schema<"HandlerRun">[]): [string, ReactNode] {
  return ["Handlers", <Handlers key="handlers" handlers={handlers} />];
}

/** The workflow, and the version that the run is pinned to. */
function WorkflowVersion({ run: { workflow, version } }: { run: Schema<"RunDetails"> }) {
  return (
    <span>
      <Link to="/workflows/$name" params={{ name: workflow }}>
        {workflow}
      </Link>{" "}
      <Link to="/workflows/$name" params={{ name: workflow }} search={{ tab: "code", version } as object}>
        <code className={styles.name} title={`Version ${version}`}>
          {version.slice(0, 8)}
        </code>
      </Link>
    </span>
  );
}

function Params({ params }: { params: Record<string, unknown> | null }) {
  const entries = Object.entries(params ?? {});
  if (params === null) return "can no longer be read";
  if (entries.length === 0) return "none";
  return (
    <span className={styles.params}>
      <Fold lines={2} what="params">
        {entries.map(([name, value], index) => (
          <Fragment key={name}>
            {index > 0 && " "}
            <code>
              <span className={styles.name}>{name}=</span>
              {JSON.stringify(value)}
            </code>
          </Fragment>
        ))}
      </Fold>
      <CopyButton text={JSON.stringify(params, null, 2)} label="Copy the params" />
    </span>
  );
}
