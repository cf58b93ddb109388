import { api } from "@/api/client";
import { useSearchParam } from "@/app/useSearchParam";
import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Panel } from "@/design/Panel/Panel";
import { SearchInput } from "@/design/SearchInput/SearchInput";
import { hasKey, keyText } from "../keys";
import type { LiveReactor } from "../useLiveReactor";
import { CacheTable } from "./CacheTable";

interface Props {
  reactor: LiveReactor;
  isBrief?: boolean;
  className?: string | undefined;
}

/** What the next firing sees; of a keyed reactor, that of one key. */
export function CachePanel({ reactor, isBrief = false, className }: Props) {
  if (reactor.state.keys) return <KeyCachePanel {...{ reactor, isBrief, className }} />;
  return (
    <Panel title="Cache" aside="what the next firing sees" isFlush className={className}>
      <CacheTable state={reactor.state} isBrief={isBrief} />
    </Panel>
  );
}

const SECOND = 1000;

/** The cache of the key that the reader names, or of the one that fired last. */
function KeyCachePanel({ reactor, isBrief = false, className }: Props) {
  const [named, setNamed] = useSearchParam("key", "");
  const last = reactor.firings.find(hasKey);
  const key = named || (last === undefined ? "" : keyText(last.key));
  const answer = api.useQuery(
    "get",
    "/api/v1/reactors/{name}",
    { params: { path: { name: reactor.state.name }, query: { key } } },
    { enabled: key !== "", refetchInterval: SECOND },
  );
  return (
    <Panel
      title={key === "" ? "Cache of a key" : `Cache of ${key}`}
      aside={<SearchInput label="Key" value={named} onChange={setNamed} />}
      isFlush
      className={className}
    >
      {key === "" ? (
        <EmptyState title="No key has fired yet.">Each key has its own cache. Name a key to see it.</EmptyState>
      ) : (
        <Answer query={answer}>{(state) => <CacheTable state={state} isBrief={isBrief} />}</Answer>
      )}
    </Panel>
  );
}
