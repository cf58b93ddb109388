import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { Schema } from "@/api/types";
import { Button } from "@/design/Button/Button";
import { plural } from "@/format/number";
import styles from "./DenseBands.module.css";

/** Bands that are always shown. */
const SHOWN = 5;

/** Schedules with too many slots to draw each: a band over the whole week. */
export function DenseBands({ schedules }: { schedules: Schema<"DenseSchedule">[] }) {
  const [isOpen, setOpen] = useState(false);
  if (schedules.length === 0) return null;
  const hidden = isOpen ? 0 : Math.max(0, schedules.length - SHOWN);
  return (
    <ul className={styles.bands}>
      {schedules.slice(0, schedules.length - hidden).map(({ workflow, key, rule, slots }) => (
        <li key={`${workflow} ${key}`} className={styles.band}>
          <Link to="/workflows/$name" params={{ name: workflow }}>
            {workflow}
          </Link>
          <code className={styles.rule}>{rule}</code>
          <span className={styles.count}>{plural(slots, "slot")} this week</span>
        </li>
      ))}
      {(hidden > 0 || isOpen) && (
        <li>
          <Button look="quiet" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {isOpen ? "Show fewer" : `${plural(hidden, "more schedule", "more schedules")} with many slots`}
          </Button>
        </li>
      )}
    </ul>
  );
}
