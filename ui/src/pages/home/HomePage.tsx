import { Page } from "@/design/Page/Page";

export function HomePage() {
  return <Page title="Home">{null}</Page>;
}
