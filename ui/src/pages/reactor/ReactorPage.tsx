import { Page } from "@/design/Page/Page";

export function ReactorPage() {
  return <Page title="Reactor">{null}</Page>;
}
