import { Page } from "@/design/Page/Page";

export function BackfillsPage() {
  return <Page title="Backfills">{null}</Page>;
}
