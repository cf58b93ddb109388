import { memo, useMemo } from "react";
import type { Schema } from "@/api/types";
import { type GraphEdge, type GraphNode, GraphView } from "@/design/GraphView/GraphView";
import { stateLabel, toneOf } from "@/design/tone";
import { formatRate } from "@/format/number";
import { changedInputs, type Firing } from "../firings";
import { latencyTone } from "../latency";
import type { LiveReactor } from "../useLiveReactor";
import { AccumulatorBox } from "./AccumulatorBox";
import { figuresOf, isOnRoute, nodeActivity, type Route, routeOf, wireRate } from "./activity";
import { NodeBox } from "./NodeBox";
import { ReactorBox } from "./ReactorBox";
import { type NodeBox as NodeBoxData, REACTOR, reactorGraph, type ReactorGraph as Structure } from "./reactorGraph";
import { usePaced } from "./usePaced";

interface Props {
  reactor: LiveReactor;
  graphs: Schema<"GraphDetails">[];
  /** The firing whose route is shown. */
  firing: Firing | undefined;
  selected: string;
  onSelect: (id: string) => void;
}

const SIZES = { accumulator: [178, 48], reactor: [148, 84], node: [140, 50] } as const;
const GAP = 44;
/** Room for a rate, and for each letter before it. */
const RATE_WIDTH = 44;
const LETTER_WIDTH = 5.6;

/** With more nodes than this, figures would be too small to read, and take long to draw; a selected node has them. */
const DENSE = 150;

/** Milliseconds between two drawings of so many nodes. */
const DENSE_PAUSE = 1500;

/** The reactor as a live graph: accumulators, the reactor, the nodes of its graphs, and what passes between them. */
export function ReactorGraph({ reactor, graphs, firing, selected, onSelect }: Props) {
  const structure = useStructure(Object.keys(reactor.state.accumulators), graphs);
  const live = usePaced({ reactor, firing }, structure.nodes.length > DENSE ? DENSE_PAUSE : 0);
  return <Drawing {...live} structure={structure} selected={selected} onSelect={onSelect} />;
}

interface DrawingProps extends Omit<Props, "graphs"> {
  structure: Structure;
}

const Drawing = memo(function Drawing({ reactor, structure, firing, selected, onSelect }: DrawingProps) {
  const activity = useMemo(() => nodeActivity(reactor.firings), [reactor.firings]);
  const route = useRoute(reactor.firings, firing);
  const isDense = structure.nodes.length > DENSE;
  const nodes: GraphNode[] = [
    ...accumulatorNodes(reactor, structure, selected),
    reactorNode(reactor),
    ...structure.nodes.map((box): GraphNode => {
      const found = activity.get(box.id);
      const figures = isDense ? null : figuresOf(found, reactor.rates.fires ?? 0);
      const isActive = route.active.has(box.id);
      const [width, height] = sizeOf(box);
      return {
        id: box.id,
        label: `Node ${box.node.name}${firing ? (isActive ? ", ran" : ", skipped") : ""}`,
        width,
        height,
        tone: route.failed.has(box.id) ? "red" : isActive ? "green" : undefined,
        ground: latencyTone(found?.p99),
        isFaint: firing !== undefined && !isActive,
        isSelected: box.id === selected,
        content: <NodeBox box={box} figures={figures} />,
        version: figures?.join() ?? "",
      };
    }),
  ];
  const edges = structure.wires.map((wire): GraphEdge => {
    const isActive = isOnRoute(wire, route);
    return {
      source: wire.source,
      target: wire.target,
      isActive,
      isFaint: firing !== undefined && !isActive,
      isDashed: wire.isOptional,
      ...(!isDense && {
        label: [wire.label, formatRate(wireRate(wire, reactor.rates, activity))].filter(Boolean).join(" "),
        labelWidth: RATE_WIDTH + wire.label.length * LETTER_WIDTH,
      }),
    };
  });
  return (
    <GraphView
      label={`Graph of reactor ${reactor.state.name}`}
      nodes={nodes}
      edges={edges}
      gap={GAP}
      first={[...structure.accumulators, REACTOR]}
      onSelect={(id) => onSelect(id === REACTOR || id === selected ? "" : id)}
    />
  );
});

/** A node that feeds an accumulator shows its name too, and gets the room for it. */
function sizeOf({ node }: NodeBoxData): [width: number, height: number] {
  const [width, height] = SIZES.node;
  const letters = node.name.length + (node.feeds === null ? 0 : node.feeds.length + 3);
  return [Math.max(width, Math.min(2 * width, 28 + letters * LETTER_WIDTH * 1.2)), height];
}

function accumulatorNodes({ state }: LiveReactor, structure: Structure, selected: string): GraphNode[] {
  const [width, height] = SIZES.accumulator;
  return structure.accumulators.flatMap((name) => {
    const accumulator = state.accumulators[name];
    if (accumulator === undefined) return [];
    const isDirty = state.dirty[name] ?? false;
    return [
      {
        id: name,
        label: `Accumulator ${name}, ${stateLabel(accumulator.health)}${isDirty ? ", dirty" : ""}`,
        width,
        height,
        tone: toneOf(accumulator.health),
        isSelected: name === selected,
        content: <AccumulatorBox accumulator={accumulator} isDirty={isDirty} />,
      },
    ];
  });
}

function reactorNode(reactor: LiveReactor): GraphNode {
  const { name, health, paused } = reactor.state;
  const [width, height] = SIZES.reactor;
  return {
    id: REACTOR,
    label: `Reactor ${name}, ${paused ? "paused" : stateLabel(health)}`,
    width,
    height,
    tone: toneOf(paused ? "paused" : health),
    ground: latencyTone(reactor.state.p99),
    content: <ReactorBox reactor={reactor} />,
  };
}

/** The structure stays the same value as long as nothing is bound or unbound. */
function useStructure(names: string[], graphs: Schema<"GraphDetails">[]): Structure {
  const key = names.join(" ");
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key says all that the names do
  return useMemo(() => reactorGraph(names, graphs), [key, graphs]);
}

function useRoute(firings: Firing[], firing: Firing | undefined): Route {
  return useMemo(() => {
    const before = firing === undefined ? undefined : firings[firings.indexOf(firing) + 1];
    return routeOf(firing, firing === undefined ? [] : changedInputs(firing, before));
  }, [firings, firing]);
}
