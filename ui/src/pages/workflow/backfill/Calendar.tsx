import { Button } from "@/design/Button/Button";
import { Icon } from "@/design/Icon/Icon";
import { formatCompact, plural } from "@/format/number";
import styles from "./Calendar.module.css";
import { type CalendarDay, type DayRange, dayOf, monthOf, weeksOf } from "./calendar";

interface Props {
  month: string;
  onMonth: (month: string) => void;
  range: DayRange | null;
  onDay: (day: string) => void;
  /** The number of slots without a run on each day, and of slots that have had one. */
  missing: Map<string, number>;
  present: Map<string, number>;
}

const WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long", year: "numeric" });
const MONTH = new Intl.DateTimeFormat("en", { month: "long", year: "numeric" });

/** A month of slots: how many each day has without a run and with one; two clicks choose a range of days. */
export function Calendar({ month, onMonth, range, onDay, missing, present }: Props) {
  const title = MONTH.format(new Date(`${month}-01T00:00:00`));
  const today = dayOf(new Date());
  return (
    <div className={styles.calendar}>
      <div className={styles.header}>
        <Button look="quiet" aria-label="Previous month" onClick={() => onMonth(monthOf(month, -1))}>
          <span className={styles.back}>
            <Icon name="chevron" />
          </span>
        </Button>
        <h3 className={styles.title} aria-live="polite">
          {title}
        </h3>
        <Button
          look="quiet"
          aria-label="Next month"
          disabled={month >= today.slice(0, 7)}
          onClick={() => onMonth(monthOf(month, 1))}
        >
          <Icon name="chevron" />
        </Button>
      </div>
      <table className={styles.month} aria-label={title}>
        <thead>
          <tr>
            {WEEKDAYS.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {weeksOf(month).map((week) => (
            <tr key={week[0]?.id}>
              {week.map((day) => (
                <td key={day.id}>
                  <Day
                    day={day}
                    isChosen={isIn(range, day.id)}
                    isFuture={day.id > today}
                    missing={missing.get(day.id) ?? 0}
                    present={present.get(day.id) ?? 0}
                    onClick={() => onDay(day.id)}
                  />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface DayProps {
  day: CalendarDay;
  isChosen: boolean;
  isFuture: boolean;
  missing: number;
  present: number;
  onClick: () => void;
}

function Day({ day, isChosen, isFuture, missing, present, onClick }: DayProps) {
  const slots = [
    missing > 0 && `${plural(missing, "slot")} without a run`,
    present > 0 && `${plural(present, "slot")} with a run`,
  ];
  const text = slots.filter(Boolean).join(", ") || "no slots";
  return (
    <button
      type="button"
      className={styles.day}
      aria-label={`${DAY.format(new Date(`${day.id}T00:00:00`))}: ${text}`}
      title={text}
      aria-pressed={isChosen}
      disabled={isFuture}
      data-outside={!day.isInMonth || undefined}
      onClick={onClick}
    >
      <span>{day.day}</span>
      <span className={styles.marks} aria-hidden="true">
        {present > 0 && <span className={styles.present} data-count={countText(present)} />}
        {missing > 0 && <span className={styles.missing} data-count={countText(missing)} />}
      </span>
    </button>
  );
}

/** How many, if that is more than one: the sign says one. */
function countText(count: number): string {
  return count > 1 ? formatCompact(count) : "";
}

function isIn(range: DayRange | null, day: string): boolean {
  return range !== null && day >= range.from && day <= (range.to ?? range.from);
}
