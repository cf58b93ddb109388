import styles from "./SlotEntry.module.css";

const STATES = ["success", "failed", "running", "late", "coming"];

export function Legend() {
  return (
    <ul className={styles.legend}>
      {STATES.map((state) => (
        <li key={state}>
          <span className={styles.swatch} data-state={state} aria-hidden="true" />
          {state}
        </li>
      ))}
    </ul>
  );
}
