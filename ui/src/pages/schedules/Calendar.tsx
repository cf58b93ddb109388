import { api } from "@/api/client";
import { useSearchParam } from "@/app/useSearchParam";
import { Answer } from "@/design/Answer/Answer";
import { Button } from "@/design/Button/Button";
import { Icon } from "@/design/Icon/Icon";
import { Panel } from "@/design/Panel/Panel";
import styles from "./Calendar.module.css";
import { DenseBands } from "./DenseBands";
import { Legend } from "./Legend";
import { WeekGrid } from "./WeekGrid";
import { addDays, dayKey, dayOf, weekOf } from "./week";

const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "long", year: "numeric" });
const WEEK = 7;

/** The slots of a week: past ones with how their runs ended, coming ones outlined. The week is in the address. */
export function Calendar({ matches }: { matches: (workflow: string) => boolean }) {
  const today = new Date();
  const [chosen, choose] = useSearchParam("week", "");
  const monday = weekOf(dayOf(chosen, today));
  const next = addDays(monday, WEEK);
  const query = { from: monday.toISOString(), to: next.toISOString() };
  const calendar = api.useQuery(
    "get",
    "/api/v1/schedules/calendar",
    { params: { query } },
    // The grid keeps its size while the next week is on its way.
    { placeholderData: (previous) => previous },
  );
  const go = (day: Date) => choose(dayKey(weekOf(day)) === dayKey(weekOf(today)) ? "" : dayKey(weekOf(day)));
  return (
    <Panel
      title={`${DAY.format(monday)} – ${DAY.format(addDays(monday, WEEK - 1))}`}
      aside={
        <>
          <Legend />
          <Button look="quiet" aria-label="Previous week" onClick={() => go(addDays(monday, -WEEK))}>
            <span className={styles.back}>
              <Icon name="chevron" />
            </span>
          </Button>
          <Button onClick={() => go(today)}>This week</Button>
          <Button look="quiet" aria-label="Next week" onClick={() => go(next)}>
            <Icon name="chevron" />
          </Button>
        </>
      }
      isFlush
    >
      <Answer query={calendar}>
        {({ slots, dense, more }) => (
          <>
            {more && <p className={styles.more}>There are more slots than the calendar can show.</p>}
            <DenseBands schedules={dense.filter(({ workflow }) => matches(workflow))} />
            <WeekGrid monday={monday} slots={slots.filter(({ workflow }) => matches(workflow))} />
          </>
        )}
      </Answer>
    </Panel>
  );
}
