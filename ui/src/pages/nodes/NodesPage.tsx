import { Page } from "@/design/Page/Page";

export function NodesPage() {
  return <Page title="Nodes">{null}</Page>;
}
