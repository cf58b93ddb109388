import { Page } from "@/design/Page/Page";

export function PackagesPage() {
  return <Page title="Packages">{null}</Page>;
}
