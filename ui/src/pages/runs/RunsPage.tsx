import { useMemo } from "react";
import { useRuns } from "@/api/useRuns";
import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { RunTable } from "@/design/RunTable/RunTable";
import { plural } from "@/format/number";
import { DismissMatching } from "./DismissMatching";
import { filterOf, isFiltered } from "./filter";
import { RunFilters } from "./RunFilters";
import styles from "./RunsPage.module.css";
import { useRunSearch } from "./useRunSearch";

/** All runs, newest first, live; new ones appear on top without moving what is being read. */
export function RunsPage() {
  const [search, change] = useRunSearch();
  const filter = useMemo(() => filterOf(search), [search]);
  const { query, runs, total, loadMore } = useRuns(filter);
  const isUnresolved = filter.unresolved === true;
  const title = isUnresolved ? "Failed runs that need a person" : "All runs";
  const actions = isUnresolved && total > 0 && <DismissMatching filter={filter} total={total} />;
  return (
    <Page title="Runs" actions={actions} isFull>
      <RunFilters search={search} onChange={change} />
      <Panel title={title} aside={query.data && plural(total, "run")} isFlush className={styles.panel}>
        <Answer query={query}>
          {() =>
            runs.length > 0 ? (
              <RunTable runs={runs} total={total} onEnd={loadMore} />
            ) : (
              <NoRuns isFiltered={isFiltered(search)} />
            )
          }
        </Answer>
      </Panel>
    </Page>
  );
}

function NoRuns({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered) return <EmptyState title="No run matches these filters." />;
  return (
    <EmptyState title="Nothing has run so far." commands={[`tidemill --server ${location.origin} run WORKFLOW`]}>
      Schedules, triggers and firings start runs by themselves. This command starts one now.
    </EmptyState>
  );
}
