import { ScrollRegion } from "../ScrollRegion/ScrollRegion";
import styles from "./JsonView.module.css";

const LONG = 4000;

/** A value as indented JSON; very long ones are cut, and say so. */
export function JsonView({ value, label }: { value: unknown; label: string }) {
  const text = JSON.stringify(value, null, 2) ?? "null";
  return (
    <ScrollRegion className={styles.json} label={label}>
      <pre>{text.length > LONG ? `${text.slice(0, LONG)}\n… ${text.length - LONG} more characters` : text}</pre>
    </ScrollRegion>
  );
}
