import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Grid } from "./Grid";
import styles from "./Grid.module.css";
import { useGrid } from "./useGrid";

/** The runs of a workflow against its tasks. */
export function GridTab({ name }: { name: string }) {
  const { query, runs, tasks, loadMore } = useGrid(name);
  return (
    <div className={styles.frame}>
      <Answer query={query}>
        {() =>
          runs.length === 0 ? (
            <EmptyState
              title="This workflow has not run so far."
              commands={[`tidemill --server ${location.origin} run ${name}`]}
            >
              Start it above, or with this command. Each run becomes a column of this grid.
            </EmptyState>
          ) : (
            <Grid runs={runs} tasks={tasks} onEnd={loadMore} />
          )
        }
      </Answer>
    </div>
  );
}
