/** The edges of a workflow version, from its stored structure. */

import type { GraphEdge } from "@/design/GraphView/GraphView";

interface StoredTask {
  name: string;
  edges?: { source: string; parameter?: string; takes?: string[] }[];
}

/** Edges that only order tasks are dashed; an edge that takes some variants of a value has their names. */
export function edgesOf(spec: Record<string, unknown>): GraphEdge[] {
  const tasks = (spec.tasks ?? []) as StoredTask[];
  return tasks.flatMap(({ name, edges = [] }) =>
    edges.map(({ source, parameter, takes }) => ({
      source,
      target: name,
      label: takes?.join(" or "),
      isDashed: parameter === undefined,
    })),
  );
}

/** The tasks that each task waits for. */
export function upstreamOf(edges: GraphEdge[]): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const { source, target } of edges) found.set(target, [...(found.get(target) ?? []), source]);
  return found;
}
