import "@xyflow/react/dist/base.css";
import {
  Background,
  Controls,
  type Edge,
  Handle,
  MarkerType,
  type Node,
  type NodeProps,
  Position,
  ReactFlow,
} from "@xyflow/react";
import { type ReactNode, useMemo } from "react";
import type { Tone } from "../tone";
import styles from "./GraphView.module.css";
import { type Direction, layoutGraph, structureOf } from "./layout";

export interface GraphNode {
  id: string;
  width?: number;
  height?: number;
  tone?: Tone;
  isSelected?: boolean;
  /** Not part of what happened last: shown faint. */
  isFaint?: boolean;
  content: ReactNode;
}

export interface GraphEdge {
  source: string;
  target: string;
  label?: string;
  /** Part of what happened last: shown strong. */
  isActive?: boolean;
  isDashed?: boolean;
}

interface Props {
  label: string;
  nodes: GraphNode[];
  edges: GraphEdge[];
  direction?: Direction;
  onSelect?: (id: string) => void;
}

const WIDTH = 176;
const HEIGHT = 56;

type FlowData = { node: GraphNode; direction: Direction };

/** A directed graph with live content: laid out once for its structure, moved and zoomed by the reader. */
export function GraphView({ label, nodes, edges, direction = "LR", onSelect }: Props) {
  const boxes = nodes.map(({ id, width = WIDTH, height = HEIGHT }) => ({ id, width, height }));
  const structure = structureOf(boxes, edges, direction);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the structure says all that the positions depend on
  const positions = useMemo(() => layoutGraph(boxes, edges, direction), [structure]);

  const flowNodes = nodes.map(
    (node): Node<FlowData> => ({
      id: node.id,
      type: "box",
      position: positions.get(node.id) ?? { x: 0, y: 0 },
      width: node.width ?? WIDTH,
      height: node.height ?? HEIGHT,
      data: { node, direction },
    }),
  );
  const flowEdges = edges.map(
    (edge): Edge => ({
      id: `${edge.source}>${edge.target}`,
      source: edge.source,
      target: edge.target,
      label: edge.label,
      className: [styles.edge, edge.isActive && styles.active, edge.isDashed && styles.dashed]
        .filter(Boolean)
        .join(" "),
      markerEnd: {
        type: MarkerType.ArrowClosed,
        width: 14,
        height: 14,
        color: edge.isActive ? "var(--accent)" : "var(--line-strong)",
      },
    }),
  );

  return (
    <div className={styles.graph}>
      <ReactFlow
        key={structure}
        aria-label={label}
        nodes={flowNodes}
        edges={flowEdges}
        nodeTypes={NODE_TYPES}
        fitView
        fitViewOptions={{ padding: 0.08, maxZoom: 1 }}
        minZoom={0.1}
        maxZoom={1.6}
        nodesDraggable={false}
        nodesConnectable={false}
        edgesFocusable={false}
        nodesFocusable={onSelect !== undefined}
        onNodeClick={(_, node) => onSelect?.(node.id)}
        onlyRenderVisibleElements
        preventScrolling={false}
        zoomOnScroll={false}
        panOnDrag
        proOptions={{ hideAttribution: true }}
      >
        <Background gap={18} size={1} color="var(--line)" />
        <Controls showInteractive={false} />
      </ReactFlow>
    </div>
  );
}

function Box({ data }: NodeProps<Node<FlowData>>) {
  const { node, direction } = data;
  const [from, to] = direction === "LR" ? [Position.Left, Position.Right] : [Position.Top, Position.Bottom];
  return (
    <div
      className={styles.box}
      data-tone={node.tone}
      data-selected={node.isSelected || undefined}
      data-faint={node.isFaint || undefined}
    >
      <Handle type="target" position={from} className={styles.handle} />
      {node.content}
      <Handle type="source" position={to} className={styles.handle} />
    </div>
  );
}

const NODE_TYPES = { box: Box };
