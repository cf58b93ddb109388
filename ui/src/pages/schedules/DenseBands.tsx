import { Link } from "@tanstack/react-router";
import type { Schema } from "@/api/types";
import { plural } from "@/format/number";
import styles from "./DenseBands.module.css";

/** Schedules with too many slots to draw each: a band over the whole week. */
export function DenseBands({ schedules }: { schedules: Schema<"DenseSchedule">[] }) {
  if (schedules.length === 0) return null;
  return (
    <ul className={styles.bands}>
      {schedules.map(({ workflow, key, rule, slots }) => (
        <li key={`${workflow} ${key}`} className={styles.band}>
          <Link to="/workflows/$name" params={{ name: workflow }}>
            {workflow}
          </Link>
          <code className={styles.rule}>{rule}</code>
          <span className={styles.count}>{plural(slots, "slot")} this week</span>
        </li>
      ))}
    </ul>
  );
}
