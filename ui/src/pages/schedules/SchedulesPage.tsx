import { useAllSchedules } from "@/api/wholeLists";
import { Answer } from "@/design/Answer/Answer";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { plural } from "@/format/number";
import { Calendar } from "./Calendar";
import { ScheduleTable } from "./ScheduleTable";

const TIME_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** When the clock starts workflows: a week as a calendar, and the schedules with their next slots. */
export function SchedulesPage() {
  const schedules = useAllSchedules();
  return (
    <Page title="Schedules" subtitle={`Times are in ${TIME_ZONE}, the time zone of your browser.`}>
      <Calendar />
      <Panel title="All schedules" aside={schedules.data && plural(schedules.data.total, "schedule")} isFlush>
        <Answer query={schedules}>{({ items }) => <ScheduleTable schedules={items} />}</Answer>
      </Panel>
    </Page>
  );
}
