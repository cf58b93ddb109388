import { Page } from "@/design/Page/Page";

export function PackagePage() {
  return <Page title="Package">{null}</Page>;
}
