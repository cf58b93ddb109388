import { Page } from "@/design/Page/Page";

export function KeysPage() {
  return <Page title="Keys">{null}</Page>;
}
