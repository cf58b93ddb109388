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
  /** The width that its label needs; without one, the edge gets no room of its own. */
  labelWidth?: number | undefined;
}

export type Direction = "LR" | "TB";

export interface Point {
  x: number;
  y: number;
}

export interface Layout {
  /** The top left corner of each node, by id. */
  positions: Map<string, Point>;
  /** By the id of an edge: where it passes between its ends, and where its label is. */
  routes: Map<string, { via: Point[]; label: Point | null }>;
}

/** From here on, the exact ranking would take seconds. */
const LARGE = 200;
const LABEL_HEIGHT = 14;

export function edgeId({ source, target }: LayoutEdge): string {
  return `${source}>${target}`;
}

export function layoutGraph(
  nodes: LayoutNode[],
  edges: LayoutEdge[],
  direction: Direction,
  gap: number = direction === "LR" ? 72 : 44,
): Layout {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({
    rankdir: direction,
    nodesep: 18,
    ranksep: gap,
    ranker: nodes.length > LARGE ? "longest-path" : "network-simplex",
  });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node.id, { width: node.width, height: node.height });
  for (const edge of edges) {
    const room = edge.labelWidth === undefined ? {} : { width: edge.labelWidth, height: LABEL_HEIGHT, labelpos: "c" };
    graph.setEdge(edge.source, edge.target, room);
  }
  dagre.layout(graph);
  const ranks = ranksOf(graph, nodes, direction);
  return {
    positions: new Map(
      nodes.map(({ id, width, height }) => {
        const { x = 0, y = 0 } = graph.node(id) ?? {};
        return [id, { x: x - width / 2, y: y - height / 2 }];
      }),
    ),
    routes: new Map(
      edges.map((edge) => [edgeId(edge), routeOf(graph.edge(edge.source, edge.target), ranks, direction)]),
    ),
  };
}

/** Where the boxes of each rank begin and end, along the direction of the graph. */
type Rank = [begin: number, end: number];

function ranksOf(
  graph: { node(id: string): Partial<Point> | undefined },
  nodes: LayoutNode[],
  direction: Direction,
): Rank[] {
  const ranks = new Map<number, Rank>();
  for (const { id, width, height } of nodes) {
    const { x = 0, y = 0 } = graph.node(id) ?? {};
    const [center, half] = direction === "LR" ? [x, width / 2] : [y, height / 2];
    const [begin, end] = ranks.get(center) ?? [center, center];
    ranks.set(center, [Math.min(begin, center - half), Math.max(end, center + half)]);
  }
  return [...ranks.values()];
}

/**
 * An edge passes the ranks between its ends straight, and bends between them. The points that the layout has between two
 * ranks are for labels: without one, a curve through them would leave its way and come back.
 */
function routeOf(
  edge: { points?: Point[]; x?: number; y?: number },
  ranks: Rank[],
  direction: Direction,
): { via: Point[]; label: Point | null } {
  const via = edge.points?.slice(1, -1) ?? [];
  if (edge.x !== undefined && edge.y !== undefined) return { via, label: { x: edge.x, y: edge.y } };
  const passed = via.flatMap(({ x, y }) => {
    const at = direction === "LR" ? x : y;
    const rank = ranks.find(([begin, end]) => begin <= at && at <= end);
    if (rank === undefined) return [];
    return direction === "LR" ? rank.map((one) => ({ x: one, y })) : rank.map((one) => ({ x, y: one }));
  });
  return { via: passed, label: null };
}

/** A curve through points that leaves and reaches each of them in the direction of the graph. */
export function curveThrough(points: Point[], direction: Direction): string {
  return points
    .map((point, index) => {
      const before = points[index - 1];
      if (before === undefined) return `M${point.x},${point.y}`;
      const [middleX, middleY] = [(before.x + point.x) / 2, (before.y + point.y) / 2];
      return direction === "LR"
        ? `C${middleX},${before.y} ${middleX},${point.y} ${point.x},${point.y}`
        : `C${before.x},${middleY} ${point.x},${middleY} ${point.x},${point.y}`;
    })
    .join("");
}

/** What a layout depends on, as a text: equal texts have equal layouts. */
export function structureOf(nodes: LayoutNode[], edges: LayoutEdge[], direction: Direction): string {
  return JSON.stringify([
    direction,
    nodes.map(({ id, width, height }) => [id, width, height]),
    edges.map(({ source, target, labelWidth }) => [source, target, labelWidth]),
  ]);
}
