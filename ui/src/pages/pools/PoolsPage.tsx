import { Page } from "@/design/Page/Page";

export function PoolsPage() {
  return <Page title="Pools">{null}</Page>;
}
