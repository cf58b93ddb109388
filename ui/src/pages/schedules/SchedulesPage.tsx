import { Page } from "@/design/Page/Page";

export function SchedulesPage() {
  return <Page title="Schedules">{null}</Page>;
}
