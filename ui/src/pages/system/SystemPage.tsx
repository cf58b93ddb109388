import { Page } from "@/design/Page/Page";

export function SystemPage() {
  return <Page title="System">{null}</Page>;
}
