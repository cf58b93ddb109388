import styles from "./JsonView.module.css";

const LONG = 4000;

/** A value as indented JSON; very long ones are cut, and say so. */
export function JsonView({ value, label }: { value: unknown; label: string }) {
  const text = JSON.stringify(value, null, 2) ?? "null";
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <section className={styles.json} aria-label={label} tabIndex={0}>
      <pre>{text.length > LONG ? `${text.slice(0, LONG)}\n… ${text.length - LONG} more characters` : text}</pre>
    </section>
  );
}
