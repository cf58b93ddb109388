/** Lists that are shown or searched as a whole, whatever their length: all pages of the server as one answer. */

import { type UseQueryResult, useQuery } from "@tanstack/react-query";
import { client } from "./client";
import { INSTANCE_TENANT, TENANT_HEADER } from "./tenant";

export interface Page<Item> {
  items: Item[];
  total: number;
  next: string | null;
}

type ReadPage<Item> = (query: { limit: number; cursor: string | null }) => Promise<{ data?: Page<Item> }>;

/** The most that the server gives at once. */
const LIMIT = 500;

export async function readWhole<Item>(read: ReadPage<Item>): Promise<Omit<Page<Item>, "next">> {
  const items: Item[] = [];
  for (let cursor: string | null = null; ; ) {
    const { data }: { data?: Page<Item> } = await read({ limit: LIMIT, cursor });
    if (data === undefined) throw new Error("The server sent no list.");
    items.push(...data.items);
    cursor = data.next;
    if (cursor === null) return { items, total: data.total };
  }
}

/** The key is that of a request, so that events of the feed make the answer outdated. */
function useWhole<Item>(path: string, read: ReadPage<Item>, part = "all"): UseQueryResult<Omit<Page<Item>, "next">> {
  return useQuery({ queryKey: ["get", path, { whole: part }], queryFn: () => readWhole(read) });
}

export const useAllWorkflows = () =>
  useWhole("/api/v1/workflows", (query) => client.GET("/api/v1/workflows", { params: { query } }));

export const useAllReactors = () =>
  useWhole("/api/v1/reactors", (query) => client.GET("/api/v1/reactors", { params: { query } }));

export const useAllPackages = () =>
  useWhole("/api/v1/packages", (query) => client.GET("/api/v1/packages", { params: { query } }));

export const useAllSchedules = () =>
  useWhole("/api/v1/schedules", (query) => client.GET("/api/v1/schedules", { params: { query } }));

/** As the one who signed in, not as an admin of the chosen tenant, who knows of no other one. */
export const useAllTenants = () =>
  useWhole(
    "/api/v1/tenants",
    (query) => client.GET("/api/v1/tenants", { params: { query }, headers: { [TENANT_HEADER]: INSTANCE_TENANT } }),
    "instance",
  );
