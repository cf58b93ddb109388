import { useQueries } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";

/** The graphs that are bound to a reactor, as far as they are loaded; the same value until one changes. */
export function useGraphs(names: string[]): { graphs: Schema<"GraphDetails">[]; error: unknown } {
  return useQueries({
    queries: names.map((name) => api.queryOptions("get", "/api/v1/graphs/{name}", { params: { path: { name } } })),
    combine: combineGraphs,
  });
}

function combineGraphs(results: { data?: Schema<"GraphDetails"> | undefined; error: unknown }[]) {
  return {
    graphs: results.flatMap(({ data }) => (data ? [data] : [])),
    error: results.find(({ error }) => error)?.error ?? null,
  };
}
