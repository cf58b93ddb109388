import { Page } from "@/design/Page/Page";

export function WorkflowPage() {
  return <Page title="Workflow">{null}</Page>;
}
