/** The structure of a reactor as one graph: accumulators, the reactor, the nodes of every graph that is bound to it. */

import type { Schema } from "@/api/types";

type Graph = Schema<"GraphDetails">;

/** The box of the reactor itself; no accumulator can have this name. */
export const REACTOR = "@reactor";

export interface NodeBox {
  /** `graph/node`. */
  id: string;
  graph: string;
  node: Schema<"GraphNodeView">;
}

export interface Wire {
  source: string;
  target: string;
  /** What passes: names of inputs, or the classes that this route is for. */
  label: string;
  isOptional: boolean;
}

export interface ReactorGraph {
  accumulators: string[];
  nodes: NodeBox[];
  wires: Wire[];
}

export function reactorGraph(accumulators: string[], graphs: Graph[]): ReactorGraph {
  return {
    accumulators,
    nodes: graphs.flatMap((graph) =>
      graph.nodes.map((node) => ({ id: `${graph.name}/${node.name}`, graph: graph.name, node })),
    ),
    wires: [
      ...accumulators.map((name) => ({ source: name, target: REACTOR, label: "", isOptional: false })),
      ...graphs.flatMap((graph) => [...wiresFromReactor(graph), ...wiresBetweenNodes(graph)]),
    ],
  };
}

/** One wire per node that reads inputs of the reactor, with all their names. */
function wiresFromReactor(graph: Graph): Wire[] {
  return graph.nodes.flatMap((node) => {
    const inputs = node.inputs.filter(({ origin }) => origin === "input");
    if (inputs.length === 0) return [];
    return [
      {
        source: REACTOR,
        target: `${graph.name}/${node.name}`,
        label: inputs.map(({ source }) => source).join(", "),
        isOptional: inputs.every(({ optional }) => optional),
      },
    ];
  });
}

/** One wire per node that reads another node, with the classes of results that take this route. */
function wiresBetweenNodes(graph: Graph): Wire[] {
  return graph.nodes.flatMap((node) => {
    const inputs = node.inputs.filter(({ origin }) => origin === "node");
    const sources = [...new Set(inputs.map(({ source }) => source))];
    return sources.map((source) => {
      const edges = graph.edges.filter((edge) => edge.target === node.name && edge.source === source);
      return {
        source: `${graph.name}/${source}`,
        target: `${graph.name}/${node.name}`,
        label: [...new Set(edges.flatMap(({ classes }) => classes ?? []))].join(" | "),
        isOptional: edges.every(({ optional }) => optional),
      };
    });
  });
}
