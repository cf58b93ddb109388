import { useAllSchedules } from "@/api/wholeLists";
import { matchScore } from "@/app/match";
import { useSearchParam } from "@/app/useSearchParam";
import { Answer } from "@/design/Answer/Answer";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { SearchInput } from "@/design/SearchInput/SearchInput";
import { plural } from "@/format/number";
import { Calendar } from "./Calendar";
import { ScheduleTable } from "./ScheduleTable";

const TIME_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** When the clock starts workflows: a week as a calendar, and the schedules with their next slots. */
export function SchedulesPage() {
  const schedules = useAllSchedules();
  const [text, setText] = useSearchParam("q", "");
  const matches = (workflow: string) => text === "" || matchScore(workflow, text) > 0;
  return (
    <Page
      title="Schedules"
      subtitle={`Times are in ${TIME_ZONE}, the time zone of your browser.`}
      actions={<SearchInput label="Search workflows" value={text} onChange={setText} />}
    >
      <Calendar matches={matches} />
      <Panel title="All schedules" aside={schedules.data && plural(schedules.data.total, "schedule")} isFlush>
        <Answer query={schedules}>
          {({ items }) => (
            <ScheduleTable schedules={items.filter(({ workflow }) => matches(workflow))} isEmpty={items.length === 0} />
          )}
        </Answer>
      </Panel>
    </Page>
  );
}
