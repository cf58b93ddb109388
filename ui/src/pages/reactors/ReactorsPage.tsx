import { useNavigate } from "@tanstack/react-router";
import { useCallback, useEffect, useRef } from "react";
import type { Schema } from "@/api/types";
import { useAllReactors } from "@/api/wholeLists";
import { matchScore } from "@/app/match";
import { useSearchParam } from "@/app/useSearchParam";
import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { FilterChips } from "@/design/FilterChips/FilterChips";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { SearchInput } from "@/design/SearchInput/SearchInput";
import { Table } from "@/design/Table/Table";
import { plural } from "@/format/number";
import { useNow } from "@/format/useNow";
import { useListNavigation } from "@/keyboard/useListNavigation";
import type { FeedEvent } from "@/live/feed";
import { useFeedEvents } from "@/live/LiveProvider";
import { COLUMNS } from "./columns";

/** All reactors: how they are, how fast they are, and what went wrong. */
export function ReactorsPage() {
  const [text, setText] = useSearchParam("q", "");
  const [wanted, setWanted] = useSearchParam("dead_letters", "");
  const [unhealthy, setUnhealthy] = useSearchParam("not_live", "");
  const isDead = wanted === "true";
  const isNotLive = unhealthy === "true";
  const reactors = useAllReactors();
  return (
    <Page
      title="Reactors"
      actions={
        <>
          <FilterChips
            label="Show only"
            chips={[
              { id: "not_live", isOn: isNotLive, label: "not live" },
              { id: "dead_letters", isOn: isDead, label: "with dead letters" },
            ]}
            onToggle={(id) =>
              id === "not_live" ? setUnhealthy(isNotLive ? "" : "true") : setWanted(isDead ? "" : "true")
            }
          />
          <SearchInput label="Search reactors" value={text} onChange={setText} />
        </>
      }
    >
      <Panel title="All reactors" aside={reactors.data && plural(reactors.data.total, "reactor")} isFlush>
        <Answer query={reactors}>
          {({ items }) => {
            const found = items
              .filter((one) => text === "" || matches(one, text))
              .filter(({ dead_letters = 0 }) => !isDead || dead_letters > 0)
              .filter(({ health }) => !isNotLive || health !== "live");
            if (found.length > 0) return <ReactorTable reactors={found} onStale={() => void reactors.refetch()} />;
            if (items.length === 0) return <NoReactors />;
            return <EmptyState title={nothingFound(text, isDead, isNotLive)} />;
          }}
        </Answer>
      </Panel>
    </Page>
  );
}

function nothingFound(text: string, isDead: boolean, isNotLive: boolean): string {
  if (text !== "" || (isDead && isNotLive)) return "No reactor matches.";
  return isDead ? "No reactor has dead letters." : "Every reactor is live.";
}

function matches({ name, subscribers, accumulators }: Schema<"ReactorState">, text: string): boolean {
  return [name, ...subscribers, ...Object.keys(accumulators)].some((one) => matchScore(one, text) > 0);
}

/** Seconds between two readings of what the feed does not tell: latencies and buffers. */
const REFRESH = 5;

function ReactorTable({ reactors, onStale }: { reactors: Schema<"ReactorState">[]; onStale: () => void }) {
  const hasFired = useRef(false);
  useFeedEvents(
    useCallback((event: FeedEvent) => {
      if (event.type === "reactor.fired") hasFired.current = true;
    }, []),
  );
  const period = Math.floor(useNow().getTime() / 1000 / REFRESH);
  // biome-ignore lint/correctness/useExhaustiveDependencies: only a new period reads again
  useEffect(() => {
    if (hasFired.current) onStale();
    hasFired.current = false;
  }, [period]);
  const navigate = useNavigate();
  const open = useCallback(
    (index: number) => void navigate({ to: "/reactors/$name", params: { name: reactors[index]?.name ?? "" } }),
    [navigate, reactors],
  );
  const selected = useListNavigation(reactors.length, open);
  const rows = reactors.map((state) => ({ state }));
  return (
    <Table label="Reactors" columns={COLUMNS} rows={rows} rowKey={({ state }) => state.name} selected={selected} />
  );
}

function NoReactors() {
  return (
    <EmptyState title="No reactor is loaded." commands={["tidemill package new hello", "tidemill dev hello"]}>
      A reactor fires graphs when events arrive: a Python file declares its accumulators, itself and its graphs. These
      commands write a package and run it.
    </EmptyState>
  );
}
