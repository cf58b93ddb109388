import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import type { Destination } from "./navigation";

type Me = Schema<"Identity">;

/** The key of the answer, for those who read it again. */
export const ME = ["get", "/api/v1/me"];

/** Who uses the page, and what they may do. */
export function useMe() {
  return api.useQuery("get", "/api/v1/me");
}

export function mayOpen(me: Me | undefined, { needs }: Destination): boolean {
  if (needs === undefined || me === undefined) return true;
  return needs === "admin" ? me.role === "admin" : me.is_instance_admin;
}

/** Whether the page should offer changes; the server decides again. */
export function useMayWrite(): boolean {
  const { data } = useMe();
  return data === undefined || data.role !== "read";
}

/** Whether the page should offer what only admins of the tenant may do: keys, accounts, secrets. */
export function useMayAdminister(): boolean {
  const { data } = useMe();
  return data === undefined || data.role === "admin";
}

/** Whether the page should offer uploads of packages, which tenants may do only if the server trusts them. */
export function useMayUpload(): boolean {
  const { data } = useMe();
  return data === undefined || data.may_upload;
}

/** Whether the page should offer what belongs to the whole instance: tenants and pools. */
export function useMayRunInstance(): boolean {
  const { data } = useMe();
  return data === undefined || data.is_instance_admin;
}
