import { Link } from "@tanstack/react-router";
import { useRuns } from "@/api/useRuns";
import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Panel } from "@/design/Panel/Panel";
import { RunTable } from "@/design/RunTable/RunTable";
import styles from "./RunsTab.module.css";

/** The runs of a workflow as a list. */
export function RunsTab({ name }: { name: string }) {
  const { query, runs, total, loadMore } = useRuns({ workflow: name });
  return (
    <Panel
      title="Runs of this workflow"
      aside={
        <Link to="/runs" search={{ workflow: name } as object}>
          Filter these runs
        </Link>
      }
      isFlush
      className={styles.panel}
    >
      <Answer query={query}>
        {() =>
          runs.length > 0 ? (
            <RunTable runs={runs} total={total} onEnd={loadMore} isOfOneWorkflow />
          ) : (
            <EmptyState title="This workflow has not run so far." />
          )
        }
      </Answer>
    </Panel>
  );
}
