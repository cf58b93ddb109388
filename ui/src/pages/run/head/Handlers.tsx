import { Link } from "@tanstack/react-router";
import type { Schema } from "@/api/types";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import styles from "./RunFacts.module.css";

/** What the ends of a run have called: each handler with its state, and a link to its run. */
export function Handlers({ handlers }: { handlers: Schema<"HandlerRun">[] }) {
  return (
    <ul className={styles.handlers}>
      {handlers.map(({ run, handles, tasks }) => (
        <li key={run}>
          <Link to="/runs/$run" params={{ run }} title={`Run ${run}`}>
            {handles}
          </Link>
          {Object.entries(tasks).map(([task, state]) => (
            <span key={task}>
              {task} <StateBadge state={state} />
            </span>
          ))}
        </li>
      ))}
    </ul>
  );
}
