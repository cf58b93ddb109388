import { Page } from "@/design/Page/Page";

export function VariablesPage() {
  return <Page title="Variables">{null}</Page>;
}
