import { useInfiniteQuery } from "@tanstack/react-query";
import { client } from "@/api/client";
import { useSearchParam } from "@/app/useSearchParam";
import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { SearchInput } from "@/design/SearchInput/SearchInput";
import { plural } from "@/format/number";
import { AuditList } from "./AuditList";
import styles from "./AuditPage.module.css";

const PATH = "/api/v1/audit";
const PAGE_SIZE = 100;

/** Who has changed what, newest first; filters are exact, as the log is. */
export function AuditPage() {
  const [actor, setActor] = useSearchParam("actor", "");
  const [action, setAction] = useSearchParam("action", "");
  const [target, setTarget] = useSearchParam("target", "");
  const entries = useAuditEntries({ actor, action, target });
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
          {({ pages }) =>
            total === 0 ? (
              <NoEntries isFiltered={isFiltered} />
            ) : (
              <AuditList
                entries={pages.flatMap(({ items }) => items)}
                total={total ?? 0}
                onEnd={() => entries.hasNextPage && !entries.isFetchingNextPage && void entries.fetchNextPage()}
                onFilter={{ actor: setActor, action: setAction, target: setTarget }}
              />
            )
          }
        </Answer>
      </Panel>
    </Page>
  );
}

function useAuditEntries(filter: { actor: string; action: string; target: string }) {
  return useInfiniteQuery({
    queryKey: ["get", PATH, { params: { query: filter } }],
    queryFn: async ({ pageParam }) => {
      const query = {
        actor: filter.actor || null,
        action: filter.action || null,
        target: filter.target || null,
        limit: PAGE_SIZE,
        cursor: pageParam,
      };
      const { data } = await client.GET(PATH, { params: { query } });
      if (data === undefined) throw new Error("The server sent no audit log.");
      return data;
    },
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next,
  });
}

function NoEntries({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered) return <EmptyState title="No change matches these filters." />;
  return (
    <EmptyState title="Nothing has been changed yet.">Every change by a person or a key is listed here.</EmptyState>
  );
}
