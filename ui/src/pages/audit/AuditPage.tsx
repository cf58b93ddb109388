import { Page } from "@/design/Page/Page";

export function AuditPage() {
  return <Page title="Audit log">{null}</Page>;
}
