import "@xyflow/react/dist/base.css";
import {
  Background,
  BaseEdge,
  Controls,
  type Edge,
  type EdgeProps,
  Handle,
  MiniMap,
  type Node,
  type NodeProps,
  Position,
  ReactFlow,
  type ReactFlowState,
  useReactFlow,
  useStore,
  useStoreApi,
} from "@xyflow/react";
import { type KeyboardEvent, type ReactNode, useEffect, useMemo, useRef } from "react";
import type { Tone } from "../tone";
import {
  BOX_HEIGHT,
  BOX_WIDTH,
  type FlowData,
  type RouteData,
  toFlowEdge,
  toFlowNode,
  versionOfEdge,
  versionOfNode,
} from "./flowElements";
import styles from "./GraphView.module.css";
import { curveThrough, type Direction, layoutGraph, structureOf } from "./layout";
import { useUnchanged } from "./useUnchanged";

export interface GraphNode {
  id: string;
  width?: number;
  height?: number;
  /** What the node is called, for those who do not see it; without it, the content says so, and from afar the id. */
  label?: string;
  tone?: Tone;
  /** A tinted ground, beside the tone: a second thing that the box tells. */
  ground?: Tone;
  isSelected?: boolean;
  /** Not part of what happened last: shown faint. */
  isFaint?: boolean;
  content: ReactNode;
  /** A text that changes whenever the content does: what looks the same is not drawn again. */
  version?: string;
}

export interface GraphEdge {
  source: string;
  target: string;
  label?: string;
  /** The width that the label needs, however its text changes. */
  labelWidth?: number;
  /** Part of what happened last: shown strong. */
  isActive?: boolean;
  isDashed?: boolean;
  /** Not part of what happened last: shown faint. */
  isFaint?: boolean;
}

interface Props {
  label: string;
  nodes: GraphNode[];
  edges: GraphEdge[];
  direction?: Direction;
  /** The room between two ranks, where the labels of edges are. */
  gap?: number;
  /** The nodes that a narrow screen begins with, because all of them would be too small to read. */
  first?: string[];
  onSelect?: (id: string) => void;
}

/** A directed graph with live content: laid out once for its structure, moved and zoomed by the reader. */
export function GraphView({ label, nodes, edges, direction = "LR", gap, first, onSelect }: Props) {
  const boxes = nodes.map(({ id, width = BOX_WIDTH, height = BOX_HEIGHT }) => ({ id, width, height }));
  const structure = structureOf(boxes, edges, direction);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the structure says all that the positions depend on
  const layout = useMemo(() => layoutGraph(boxes, edges, direction, gap), [structure, gap]);

  const isButton = onSelect !== undefined;
  const flowNodes = useUnchanged(layout, nodes, versionOfNode, (node) => toFlowNode(node, layout, direction, isButton));
  const flowEdges = useUnchanged(layout, edges, versionOfEdge, (edge) => toFlowEdge(edge, layout, direction));

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the nodes inside take the focus; keys bubble up to here
    <div className={styles.graph} onKeyDown={(event) => selectByKey(event, onSelect)}>
      <ReactFlow
        key={structure}
        aria-label={label}
        nodes={flowNodes}
        edges={flowEdges}
        nodeTypes={NODE_TYPES}
        edgeTypes={EDGE_TYPES}
        fitView
        fitViewOptions={fitOptions(first)}
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
        <Dots />
        <FitToRoom first={first} wanted={wantedOf(nodes)} />
        <Overview />
        <Controls showInteractive={false} position="bottom-right" />
      </ReactFlow>
    </div>
  );
}

/** Below this, names in boxes are smaller than 9 px. */
const READABLE = 0.7;
/** With which a graph is opened that would be smaller as a whole. */
const OPENING = 0.85;

function fitOptions(first: string[] | undefined) {
  const isNarrow = matchMedia("(width < 720px)").matches;
  return { padding: 0.08, maxZoom: 1, ...(isNarrow && first && { nodes: first.map((id) => ({ id })) }) };
}

const roomOf = ({ width, height }: ReactFlowState): string => `${width} ${height}`;

/** Shows the whole graph, again when the room for it changes; or a part of it, where all of it would be too small. */
function FitToRoom({ first, wanted }: { first: string[] | undefined; wanted: string | undefined }) {
  const { fitView, getNodesBounds, getViewport, setCenter, setViewport } = useReactFlow();
  const room = useStore(roomOf);
  const hasNodes = useStore(({ nodes }) => nodes.length > 0);
  const fitted = useRef("");
  const store = useStoreApi();
  // biome-ignore lint/correctness/useExhaustiveDependencies: only other room is a reason to move what the reader sees
  useEffect(() => {
    if (fitted.current === room || room === "0 0" || !hasNodes) return;
    fitted.current = room;
    void fitView(fitOptions(first)).then(() => {
      if (getViewport().zoom >= READABLE) return;
      if (wanted !== undefined) {
        const { x, y, width, height } = getNodesBounds([wanted]);
        void setCenter(x + width / 2, y + height / 2, { zoom: OPENING });
        return;
      }
      const { nodes, height } = store.getState();
      const begin = Math.min(...nodes.map(({ position }) => position.x));
      const { y, height: tall } = getNodesBounds(nodes.filter(({ position }) => position.x < begin + BOX_WIDTH));
      void setViewport({ x: EDGE - begin * OPENING, y: height / 2 - (y + tall / 2) * OPENING, zoom: OPENING });
    });
  }, [room, hasNodes]);
  return null;
}

/** Pixels between the edge of the view and the first nodes. */
const EDGE = 24;

/** What a reader looks for in a large graph: what is selected, else what has failed. */
function wantedOf(nodes: GraphNode[]): string | undefined {
  return (nodes.find(({ isSelected }) => isSelected) ?? nodes.find(({ tone }) => tone === "red"))?.id;
}

/** The whole of a graph of which a part is seen, to move in; of a thousand nodes it would cost more than it shows. */
function Overview() {
  const isUseful = useStore(({ nodes, width, height, transform: [, , zoom] }) => {
    if (nodes.length < OVERVIEW.from || nodes.length > OVERVIEW.to) return false;
    return zoom >= 0.3 && width * height > OVERVIEW.room;
  });
  return isUseful ? <MiniMap pannable position="bottom-left" ariaLabel="Overview of the graph" /> : null;
}

const OVERVIEW = { from: 20, to: 300, room: 400_000 };

/** Enter and space do what a click does, on the node that has the focus. */
function selectByKey(event: KeyboardEvent, onSelect: Props["onSelect"]): void {
  const node = (event.target as HTMLElement).closest<HTMLElement>(".react-flow__node");
  if (!node || !onSelect || (event.key !== "Enter" && event.key !== " ")) return;
  event.preventDefault();
  onSelect(node.dataset.id ?? "");
}

/** From this far away nothing can be read: drawing the states alone keeps a graph of a thousand nodes smooth. */
const isFar = ({ transform: [, , zoom] }: ReactFlowState): boolean => zoom < 0.3;

function Dots() {
  return useStore(isFar) ? null : <Background gap={18} size={1} color="var(--line)" />;
}

function Box({ data }: NodeProps<Node<FlowData>>) {
  const { node, direction } = data;
  const isOutline = useStore(isFar);
  const name = isOutline ? (node.label ?? node.id) : node.label;
  const [from, to] = direction === "LR" ? [Position.Left, Position.Right] : [Position.Top, Position.Bottom];
  return (
    <div
      className={styles.box}
      data-tone={node.tone}
      data-ground={node.ground}
      data-selected={node.isSelected || undefined}
      data-faint={node.isFaint || undefined}
      data-outline={isOutline || undefined}
    >
      <Handle type="target" position={from} className={styles.handle} />
      {name !== undefined && <span className="visually-hidden">{name}</span>}
      {!isOutline && node.content}
      <Handle type="source" position={to} className={styles.handle} />
    </div>
  );
}

/** An edge along the way that the layout found for it, around the nodes between its ends. */
function RoutedEdge({ sourceX, sourceY, targetX, targetY, data, label, markerEnd }: EdgeProps<Edge<RouteData>>) {
  const { via, direction, label: at } = data ?? { via: [], direction: "LR" as const, label: null };
  const path = curveThrough([{ x: sourceX, y: sourceY }, ...via, { x: targetX, y: targetY }], direction);
  const isOutline = useStore(isFar);
  const [labelX, labelY] = at ? [at.x, at.y] : [(sourceX + targetX) / 2, (sourceY + targetY) / 2];
  if (isOutline) return <BaseEdge path={path} />;
  return <BaseEdge path={path} label={label} labelX={labelX} labelY={labelY} {...(markerEnd ? { markerEnd } : {})} />;
}

const NODE_TYPES = { box: Box };
const EDGE_TYPES = { routed: RoutedEdge };
