import { Page } from "@/design/Page/Page";

export function SecretsPage() {
  return <Page title="Secrets">{null}</Page>;
}
