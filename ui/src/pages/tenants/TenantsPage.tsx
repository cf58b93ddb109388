import { Page } from "@/design/Page/Page";

export function TenantsPage() {
  return <Page title="Tenants">{null}</Page>;
}
