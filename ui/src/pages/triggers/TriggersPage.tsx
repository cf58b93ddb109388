import { Page } from "@/design/Page/Page";

export function TriggersPage() {
  return <Page title="Triggers">{null}</Page>;
}
