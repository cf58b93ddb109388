import { Fragment, useState } from "react";
import type { Schema } from "@/api/types";
import { Dialog } from "@/design/Dialog/Dialog";
import { ScrollRegion } from "@/design/ScrollRegion/ScrollRegion";
import { useNow } from "@/format/useNow";
import { byImportance, cellKey, type Entry, entriesByCell } from "./entries";
import { SlotEntry } from "./SlotEntry";
import styles from "./WeekGrid.module.css";
import { dayKey, daysOf } from "./week";

const DAY = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric" });
const HOURS = Array.from({ length: 24 }, (_, hour) => hour);

/** Seven days by 24 hours; the hour of now is marked. */
export function WeekGrid({ monday, slots }: { monday: Date; slots: Schema<"CalendarSlot">[] }) {
  const now = useNow();
  const days = daysOf(monday);
  const cells = entriesByCell(slots);
  const nowKey = cellKey(now, now.getHours());
  return (
    <ScrollRegion className={styles.scroll} label="Calendar">
      <div className={styles.grid}>
        <span className={styles.corner} />
        {days.map((day) => (
          <h3 key={dayKey(day)} className={styles.day} data-today={dayKey(day) === dayKey(now) || undefined}>
            {DAY.format(day)}
          </h3>
        ))}
        {HOURS.map((hour) => (
          <Fragment key={hour}>
            <span className={styles.hour}>{String(hour).padStart(2, "0")}:00</span>
            {days.map((day) => {
              const key = cellKey(day, hour);
              return (
                <div key={key} className={styles.cell} data-now={key === nowKey || undefined}>
                  <Entries entries={cells.get(key) ?? []} when={`${DAY.format(day)}, ${hour}:00`} />
                </div>
              );
            })}
          </Fragment>
        ))}
      </div>
    </ScrollRegion>
  );
}

/** Entries of a cell that are always shown. */
const SHOWN = 3;

/** The entries of an hour, what matters most first; the rest is in a list that opens. */
function Entries({ entries, when }: { entries: Entry[]; when: string }) {
  const [isOpen, setOpen] = useState(false);
  const ordered = entries.length > SHOWN ? byImportance(entries) : entries;
  const hidden = entries.length - SHOWN;
  return (
    <>
      {ordered.slice(0, SHOWN).map((entry) => (
        <SlotEntry key={entry.workflow} entry={entry} />
      ))}
      {hidden > 0 && (
        <button type="button" className={styles.others} onClick={() => setOpen(true)}>
          {hidden} more
        </button>
      )}
      {isOpen && (
        <Dialog title={when} onClose={() => setOpen(false)}>
          <div className={styles.all}>
            {ordered.map((entry) => (
              <SlotEntry key={entry.workflow} entry={entry} />
            ))}
          </div>
        </Dialog>
      )}
    </>
  );
}
