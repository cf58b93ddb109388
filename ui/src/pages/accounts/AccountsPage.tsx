import { Page } from "@/design/Page/Page";

export function AccountsPage() {
  return <Page title="Accounts">{null}</Page>;
}
