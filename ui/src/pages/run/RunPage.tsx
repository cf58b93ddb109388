import { Page } from "@/design/Page/Page";

export function RunPage() {
  return <Page title="Run">{null}</Page>;
}
