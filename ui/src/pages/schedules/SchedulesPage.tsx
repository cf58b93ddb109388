import { useAllSchedules } from "@/api/wholeLists";
import { matchScore } from "@/app/match";
import { useSearchParam } from "@/app/useSearchParam";
import { Answer } from "@/design/Answer/Answer";
import { FilterChips } from "@/design/FilterChips/FilterChips";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { SearchInput } from "@/design/SearchInput/SearchInput";
import { plural } from "@/format/number";
import { Calendar } from "./Calendar";
import { ScheduleTable } from "./ScheduleTable";
import { scheduleKey, useLateSlots } from "./useLateSlots";

const TIME_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** When the clock starts workflows: a week as a calendar, and the schedules with their next slots, or the late ones. */
export function SchedulesPage() {
  const schedules = useAllSchedules();
  const [text, setText] = useSearchParam("q", "");
  const [late, setLate] = useSearchParam("late", "");
  const isLate = late === "true";
  const lateSlots = useLateSlots(isLate);
  const matches = (workflow: string) => text === "" || matchScore(workflow, text) > 0;
  return (
    <Page
      title="Schedules"
      subtitle={`Times are in ${TIME_ZONE}, the time zone of your browser.`}
      actions={
        <>
          <FilterChips
            label="Show only"
            chips={[{ id: "late", isOn: isLate, label: "late slots" }]}
            onToggle={() => setLate(isLate ? "" : "true")}
          />
          <SearchInput label="Search workflows" value={text} onChange={setText} />
        </>
      }
    >
      {isLate ? (
        <Panel title="Late slots" isFlush>
          <Answer query={lateSlots}>
            {(slots) => (
              <Answer query={schedules}>
                {({ items }) => (
                  <ScheduleTable
                    schedules={items.filter((one) => matches(one.workflow) && slots.has(scheduleKey(one)))}
                    lateSlots={slots}
                    emptyTitle={text === "" ? "No slot is late." : "No workflow with a late slot has this name."}
                  />
                )}
              </Answer>
            )}
          </Answer>
        </Panel>
      ) : (
        <>
          <Calendar matches={matches} />
          <Panel title="All schedules" aside={schedules.data && plural(schedules.data.total, "schedule")} isFlush>
            <Answer query={schedules}>
              {({ items }) => (
                <ScheduleTable
                  schedules={items.filter(({ workflow }) => matches(workflow))}
                  isEmpty={items.length === 0}
                />
              )}
            </Answer>
          </Panel>
        </>
      )}
    </Page>
  );
}
