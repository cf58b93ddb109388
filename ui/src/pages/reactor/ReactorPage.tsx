import { useParams } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import { api } from "@/api/client";
import { useSearchParam } from "@/app/useSearchParam";
import { About } from "@/design/About/About";
import { Answer } from "@/design/Answer/Answer";
import { ErrorState } from "@/design/ErrorState/ErrorState";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { Skeleton } from "@/design/Skeleton/Skeleton";
import { type Tab, Tabs } from "@/design/Tabs/Tabs";
import { formatCount, plural } from "@/format/number";
import { Figures } from "./head/Figures";
import { HealthMark, healthReason } from "./head/HealthMark";
import { ReactorActions } from "./head/ReactorActions";
import { CachePanel } from "./tabs/CachePanel";
import { DeadLettersTab } from "./tabs/DeadLettersTab";
import { LiveTab } from "./tabs/LiveTab";
import { PartitionTable } from "./tabs/PartitionTable";
import { RestartsTab } from "./tabs/RestartsTab";
import { SourceTab } from "./tabs/SourceTab";
import { useGraphs } from "./useGraphs";
import { type LiveReactor, useLiveReactor } from "./useLiveReactor";

/** Plots are a large part of the code, and the first tab has none. */
const LatencyTab = lazy(() => import("./tabs/LatencyTab").then(({ LatencyTab }) => ({ default: LatencyTab })));

/** One reactor, live: its graph, its firings, its cache, its latency, what went wrong, and what can be done. */
export function ReactorPage() {
  const { name = "" } = useParams({ strict: false });
  const answer = api.useQuery("get", "/api/v1/reactors/{name}", { params: { path: { name } } });
  const reactor = useLiveReactor(name, answer.data);
  if (reactor === null)
    return (
      <Page title={name}>
        <Answer query={answer}>{() => null}</Answer>
      </Page>
    );
  return <LoadedReactor key={name} reactor={reactor} />;
}

function LoadedReactor({ reactor }: { reactor: LiveReactor }) {
  const { state } = reactor;
  const [, showFiring] = useSearchParam("firing", "");
  const deadLetters = useDeadLetterCount(state.name);
  return (
    <Page
      title={state.name}
      mark={<HealthMark reactor={reactor} />}
      subtitle={healthReason(state) ?? subtitleOf(reactor)}
      actions={
        <ReactorActions
          reactor={reactor}
          onFired={(firing) => {
            reactor.addFiring(firing);
            showFiring(firing.id);
          }}
        />
      }
    >
      <About owner={state.owner} description={state.description} />
      <Figures reactor={reactor} deadLetters={deadLetters} />
      <Parts reactor={reactor} deadLetters={deadLetters} />
    </Page>
  );
}

function subtitleOf({ state }: LiveReactor): string {
  const graphs = state.subscribers.length > 0 ? state.subscribers.join(", ") : "no graph";
  const sources = plural(Object.keys(state.accumulators).length, "accumulator");
  const starts = state.starts?.length ? `starts ${state.starts.join(", ")}` : "starts no workflow";
  return `${sources} → ${graphs} · ${starts} · fires on ${state.when} · strategy ${state.strategy}`;
}

/** Of the reactor and its accumulators: events, firings and starts of runs. */
function useDeadLetterCount(name: string): number | undefined {
  const { data } = api.useQuery("get", "/api/v1/reactors/{name}/dead-letters", {
    params: { path: { name }, query: { limit: 1 } },
  });
  return data?.total;
}

function keysOf({ state }: LiveReactor): string {
  return state.keys ? `${plural(state.keys.total, "key")}, ${formatCount(state.keys.active)} in memory` : "";
}

const PARTITIONS: Tab = { id: "partitions", label: "Partitions" };

const TABS: Tab[] = [
  { id: "live", label: "Overview" },
  { id: "latency", label: "Latency" },
  { id: "cache", label: "Cache" },
  { id: "dead-letters", label: "Dead letters" },
  { id: "restarts", label: "Restarts" },
  { id: "source", label: "Source" },
];

function Parts({ reactor, deadLetters }: { reactor: LiveReactor; deadLetters: number | undefined }) {
  const [wanted] = useSearchParam("tab", "live");
  const partitions = reactor.state.partitions ?? [];
  const tabs = partitions.length > 0 ? [...TABS, PARTITIONS] : TABS;
  const tab = tabs.some(({ id }) => id === wanted) ? wanted : "live";
  const { graphs, error } = useGraphs(reactor.state.subscribers);
  const { name } = reactor.state;
  return (
    <>
      <Tabs
        tabs={tabs.map((one) => (deadLetters && one.id === "dead-letters" ? { ...one, count: deadLetters } : one))}
        current={tab}
      />
      {error !== null && <ErrorState error={error} />}
      {tab === "live" && <LiveTab reactor={reactor} graphs={graphs} />}
      {tab === "latency" && (
        <Suspense fallback={<Skeleton lines={8} />}>
          <LatencyTab name={reactor.state.name} />
        </Suspense>
      )}
      {tab === "cache" && <CachePanel reactor={reactor} />}
      {tab === "dead-letters" && <DeadLettersTab name={name} />}
      {tab === "restarts" && <RestartsTab name={name} />}
      {tab === "source" && <SourceTab graphs={graphs} />}
      {tab === "partitions" && (
        <Panel title="Partitions" aside={keysOf(reactor)} isFlush>
          <PartitionTable partitions={partitions} />
        </Panel>
      )}
    </>
  );
}
