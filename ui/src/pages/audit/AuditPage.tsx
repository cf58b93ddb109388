import { keepPreviousData } from "@tanstack/react-query";
import { api } from "@/api/client";
import { itemsOf, PAGED, useMore } from "@/api/paging";
import { useSearchParam } from "@/app/useSearchParam";
import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { SearchInput } from "@/design/SearchInput/SearchInput";
import { plural } from "@/format/number";
import { AuditList } from "./AuditList";
import styles from "./AuditPage.module.css";

const PAGE_SIZE = 100;

/** Who has changed what, newest first; filters are exact, as the log is. */
export function AuditPage() {
  const [actor, setActor] = useSearchParam("actor", "");
  const [action, setAction] = useSearchParam("action", "");
  const [target, setTarget] = useSearchParam("target", "");
  const entries = useAuditEntries({ actor, action, target });
  const more = useMore(entries);
  const total = entries.data?.pages[0]?.total;
  const isFiltered = actor !== "" || action !== "" || target !== "";
  return (
    <Page
      title="Audit log"
      isFull
      actions={
        <>
          <SearchInput label="Actor" value={actor} onChange={setActor} />
          <SearchInput label="Action" value={action} onChange={setAction} />
          <SearchInput label="Target" value={target} onChange={setTarget} />
        </>
      }
    >
      <Panel title="Changes" aside={total !== undefined && plural(total, "change")} isFlush className={styles.panel}>
        <Answer query={entries}>
          {(data) =>
            total === 0 ? (
              <NoEntries isFiltered={isFiltered} />
            ) : (
              <AuditList
                entries={itemsOf(data)}
                total={total ?? 0}
                onEnd={more}
                onFilter={{ actor: setActor, action: setAction, target: setTarget }}
              />
            )
          }
        </Answer>
      </Panel>
    </Page>
  );
}

function useAuditEntries({ actor, action, target }: { actor: string; action: string; target: string }) {
  const filter = { actor: actor || null, action: action || null, target: target || null };
  return api.useInfiniteQuery(
    "get",
    "/api/v1/audit",
    { params: { query: { ...filter, limit: PAGE_SIZE } } },
    { ...PAGED, placeholderData: keepPreviousData },
  );
}

function NoEntries({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered) return <EmptyState title="No change matches these filters." />;
  return (
    <EmptyState title="Nothing has been changed yet.">Every change by a person or a key is listed here.</EmptyState>
  );
}
