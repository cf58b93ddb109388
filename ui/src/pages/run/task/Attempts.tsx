import { api } from "@/api/client";
import { itemsOf, PAGED } from "@/api/paging";
import type { Schema } from "@/api/types";
import { Answer } from "@/design/Answer/Answer";
import { Button } from "@/design/Button/Button";
import { Elapsed } from "@/design/Elapsed/Elapsed";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Facts } from "@/design/Facts/Facts";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { Time } from "@/design/Time/Time";
import type { Change, Selection } from "../useSelection";
import styles from "./Attempts.module.css";
import { ErrorText } from "./ErrorText";

type Attempt = Schema<"AttemptInfo">;

interface Props {
  run: string;
  selection: Selection;
  onChange: (change: Change) => void;
}

/** The attempts of a task side by side: when, where, how each ended, and its error. */
export function Attempts({ run, selection, onChange }: Props) {
  const { task, index } = selection;
  const query = api.useInfiniteQuery(
    "get",
    "/api/v1/runs/{run}/tasks/{task}/attempts",
    { params: { path: { run, task }, query: index === null ? { limit: 60 } : { index, limit: 60 } } },
    PAGED,
  );
  return (
    <Answer query={query}>
      {(data) => {
        const attempts = itemsOf(data);
        if (attempts.length === 0) return <EmptyState title="This task has not been attempted." />;
        return (
          <div className={styles.attempts}>
            {attempts.map((one) => (
              <AttemptCard
                key={`${one.index}.${one.attempt}`}
                attempt={one}
                onLog={() => onChange({ view: "log", attempt: one.attempt })}
              />
            ))}
            {query.hasNextPage && (
              <Button isBusy={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
                Show more
              </Button>
            )}
          </div>
        );
      }}
    </Answer>
  );
}

function AttemptCard({ attempt, onLog }: { attempt: Attempt; onLog: () => void }) {
  const element = attempt.index === null ? "" : `[${attempt.index}] `;
  return (
    <article className={styles.attempt} aria-label={`${element}attempt ${attempt.attempt}`}>
      <header className={styles.header}>
        <h3>
          {element}Attempt {attempt.attempt}
        </h3>
        <StateBadge state={attempt.outcome ?? "running"} />
      </header>
      <Facts facts={factsOf(attempt)} />
      {attempt.error !== null && <ErrorText error={attempt.error} />}
      <Button look="quiet" onClick={onLog}>
        Log of this attempt
      </Button>
    </article>
  );
}

function factsOf(attempt: Attempt): Parameters<typeof Facts>[0]["facts"] {
  const facts: Parameters<typeof Facts>[0]["facts"] = [
    ["Claimed", <Time key="claimed" at={attempt.claimed_at} />],
    ["Started", attempt.started_at === null ? "not yet" : <Time key="started" at={attempt.started_at} />],
    ["Took", <Elapsed key="took" from={attempt.started_at} to={attempt.ended_at} />],
    ["Executor", attempt.executor],
    ["Worker", attempt.worker],
  ];
  if (attempt.exit !== null) facts.push(["Exit code", attempt.exit]);
  return facts;
}
