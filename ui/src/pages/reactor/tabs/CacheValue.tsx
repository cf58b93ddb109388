import { useState } from "react";
import { JsonView } from "@/design/JsonView/JsonView";
import { shortValue } from "../firings";
import styles from "./CacheTable.module.css";

/** A value of the cache in one line; opened, in full. A list shows how long it is and its newest item. */
export function CacheValue({ name, value }: { name: string; value: unknown }) {
  const [isOpen, setOpen] = useState(false);
  if (value === undefined || value === null) return <span className={styles.absent}>none yet</span>;
  return (
    <details className={styles.value} open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{summaryOf(value)}</summary>
      {isOpen && <JsonView value={value} label={`Value of ${name}`} />}
    </details>
  );
}

function summaryOf(value: unknown): string {
  if (!Array.isArray(value)) return shortValue(value);
  return value.length === 0 ? "empty" : `${value.length} items, newest ${shortValue(value.at(-1))}`;
}
