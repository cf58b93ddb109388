/** Positions of a directed graph. They depend on its structure alone, so that nothing moves while values change. */

import dagre from "@dagrejs/dagre";

export interface LayoutNode {
  id: string;
  width: number;
  height: number;
}

export interface LayoutEdge {
  source: string;
  target: string;
}

export type Direction = "LR" | "TB";

/** From here on, the exact ranking would take seconds. */
const LARGE = 200;

export function layoutGraph(
  nodes: LayoutNode[],
  edges: LayoutEdge[],
  direction: Direction,
  gap: number = direction === "LR" ? 72 : 44,
): Map<string, { x: number; y: number }> {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({
    rankdir: direction,
    nodesep: 18,
    ranksep: gap,
    ranker: nodes.length > LARGE ? "longest-path" : "network-simplex",
  });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node.id, { width: node.width, height: node.height });
  for (const edge of edges) graph.setEdge(edge.source, edge.target);
  dagre.layout(graph);
  return new Map(
    nodes.map(({ id, width, height }) => {
      const { x = 0, y = 0 } = graph.node(id) ?? {};
      return [id, { x: x - width / 2, y: y - height / 2 }];
    }),
  );
}

/** What a layout depends on, as a text: equal texts have equal layouts. */
export function structureOf(nodes: LayoutNode[], edges: LayoutEdge[], direction: Direction): string {
  return JSON.stringify([
    direction,
    nodes.map(({ id, width, height }) => [id, width, height]),
    edges.map(({ source, target }) => [source, target]),
  ]);
}
