/** Tenants: whose things a page shows. */

/** Its admins are those of the instance. */
export const INSTANCE_TENANT = "public";
export const TENANT_HEADER = "tidemill-tenant";

const KEY = "tidemill.tenant";

/** The tenant that an admin of the instance looks at; `null` is their own. */
export function actingTenant(): string | null {
  return sessionStorage.getItem(KEY);
}

export function actAs(tenant: string | null): void {
  if (tenant === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, tenant);
}
