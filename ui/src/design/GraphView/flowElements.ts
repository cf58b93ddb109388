/** The nodes and edges of a graph, as React Flow takes them. */

import { type Edge, MarkerType, type Node, type NodeHandle, Position } from "@xyflow/react";
import type { GraphEdge, GraphNode } from "./GraphView";
import styles from "./GraphView.module.css";
import { type Direction, edgeId, type Layout, type Point } from "./layout";

export const BOX_WIDTH = 176;
export const BOX_HEIGHT = 56;

export type FlowData = { node: GraphNode; direction: Direction };
export type RouteData = { via: Point[]; label: Point | null; direction: Direction };

export function toFlowNode(
  node: GraphNode,
  { positions }: Layout,
  direction: Direction,
  isButton: boolean,
): Node<FlowData> {
  const size = { width: node.width ?? BOX_WIDTH, height: node.height ?? BOX_HEIGHT };
  return {
    id: node.id,
    type: "box",
    position: positions.get(node.id) ?? { x: 0, y: 0 },
    ...size,
    // React Flow draws no edge to a node whose size and handles it does not know. Nodes that are replaced
    // before it has measured them would lose their edges, and live nodes are replaced all the time.
    measured: size,
    handles: handlesOf(size, direction),
    ariaRole: isButton ? "button" : "group",
    data: { node, direction },
  };
}

function handlesOf({ width, height }: { width: number; height: number }, direction: Direction): NodeHandle[] {
  const [x, y] = [width / 2, height / 2];
  return direction === "LR"
    ? [
        { type: "target", position: Position.Left, x: 0, y },
        { type: "source", position: Position.Right, x: width, y },
      ]
    : [
        { type: "target", position: Position.Top, x, y: 0 },
        { type: "source", position: Position.Bottom, x, y: height },
      ];
}

export function toFlowEdge(edge: GraphEdge, { routes }: Layout, direction: Direction): Edge<RouteData> {
  const id = edgeId(edge);
  const looks = [
    styles.edge,
    edge.isActive && styles.active,
    edge.isDashed && styles.dashed,
    edge.isFaint && styles.faint,
  ];
  return {
    id,
    type: "routed",
    source: edge.source,
    target: edge.target,
    label: edge.label,
    data: { ...(routes.get(id) ?? { via: [], label: null }), direction },
    className: looks.filter(Boolean).join(" "),
    markerEnd: {
      type: MarkerType.ArrowClosed,
      width: 14,
      height: 14,
      color: edge.isActive ? "var(--accent)" : "var(--line-strong)",
    },
  };
}

/** Everything that a node shows, as a text; null if its content may show anything. */
export function versionOfNode({ id, version, label, tone, ground, isSelected, isFaint }: GraphNode) {
  const look = version === undefined ? null : [version, label, tone, ground, isSelected, isFaint].join("|");
  return { id, version: look };
}

export function versionOfEdge(edge: GraphEdge) {
  return { id: edgeId(edge), version: [edge.label, edge.isActive, edge.isDashed, edge.isFaint].join("|") };
}
