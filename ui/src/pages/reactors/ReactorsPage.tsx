import { Page } from "@/design/Page/Page";

export function ReactorsPage() {
  return <Page title="Reactors">{null}</Page>;
}
