import type { Schema } from "@/api/types";
import { Button } from "@/design/Button/Button";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Icon } from "@/design/Icon/Icon";
import { Panel } from "@/design/Panel/Panel";
import type { Firing } from "../firings";
import { FiringDetails } from "../firings/FiringDetails";
import { reactorGraph } from "../graph/reactorGraph";
import { AccumulatorPanel } from "../selection/AccumulatorPanel";
import { NodePanel } from "../selection/NodePanel";
import type { LiveReactor } from "../useLiveReactor";
import { CachePanel } from "./CachePanel";
import styles from "./LiveTab.module.css";

interface Props {
  reactor: LiveReactor;
  graphs: Schema<"GraphDetails">[];
  /** The id of a box of the graph, or empty. */
  selected: string;
  /** The id of a firing, or empty. */
  firingId: string;
  firing: Firing | undefined;
  onClose: () => void;
}

/** What the reader has selected: a box of the graph or a firing; without a selection, the cache. */
export function Inspector({ reactor, graphs, selected, firingId, firing, onClose }: Props) {
  if (selected === "" && firingId === "") {
    return <CachePanel reactor={reactor} isBrief className={styles.fixed} />;
  }
  const close = (
    <Button look="quiet" aria-label="Close the selection" onClick={onClose}>
      <Icon name="close" />
    </Button>
  );
  return (
    <Panel
      title={selected !== "" ? titleOf(selected) : `Firing ${firingId}`}
      aside={close}
      isFlush
      className={styles.fixed}
    >
      {selected === "" ? (
        <FiringDetails firing={firing} />
      ) : (
        <Selected key={selected} {...{ reactor, graphs, selected }} />
      )}
    </Panel>
  );
}

function titleOf(selected: string): string {
  return selected.includes("/") ? `Node ${selected.split("/").at(-1)}` : `Accumulator ${selected}`;
}

function Selected({ reactor, graphs, selected }: Pick<Props, "reactor" | "graphs" | "selected">) {
  const names = Object.keys(reactor.state.accumulators);
  if (names.includes(selected)) return <AccumulatorPanel reactor={reactor} name={selected} />;
  const box = reactorGraph(names, graphs).nodes.find(({ id }) => id === selected);
  if (box !== undefined) return <NodePanel box={box} reactor={reactor} />;
  return <EmptyState title={`This reactor has no ${selected}.`}>It may have been unloaded or renamed.</EmptyState>;
}
