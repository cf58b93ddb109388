import { Link } from "@tanstack/react-router";
import { stateLabel } from "@/design/tone";
import { plural } from "@/format/number";
import { formatFullTime } from "@/format/time";
import type { Entry } from "./entries";
import styles from "./SlotEntry.module.css";

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });

/** The slots of one workflow in one hour; it leads to the run, or to the workflow if there is none or several. */
export function SlotEntry({ entry: { workflow, slots, state } }: { entry: Entry }) {
  const [first] = slots;
  if (first === undefined) return null;
  const isOne = slots.length === 1;
  const when = isOne
    ? formatFullTime(first.slot)
    : `${plural(slots.length, "slot")} from ${formatFullTime(first.slot)}`;
  const to = isOne && first.run ? `/runs/${first.run}` : `/workflows/${encodeURIComponent(workflow)}`;
  return (
    <Link to={to} className={styles.entry} data-state={state} title={`${workflow}, ${stateLabel(state)}, ${when}`}>
      <span className={styles.time}>{isOne ? CLOCK.format(new Date(first.slot)) : `${slots.length}×`}</span>
      <span className={styles.name}>{workflow}</span>
      <span className="visually-hidden">, {stateLabel(state)}</span>
    </Link>
  );
}
