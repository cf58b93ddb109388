import { Page } from "@/design/Page/Page";

export function RunsPage() {
  return <Page title="Runs">{null}</Page>;
}
