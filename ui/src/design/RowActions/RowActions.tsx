import { Button } from "../Button/Button";
import styles from "./RowActions.module.css";

export interface RowAction {
  label: string;
  act: () => void;
  isDangerous?: boolean;
  isBusy?: boolean;
}

/** What can be done with one row of a table; each button's name says with which. */
export function RowActions({ subject, actions }: { subject: string; actions: RowAction[] }) {
  return (
    <span className={styles.actions}>
      {actions.map(({ label, act, isDangerous, isBusy = false }) => (
        <Button
          key={label}
          look="quiet"
          className={isDangerous ? styles.dangerous : styles.action}
          aria-label={`${label} ${subject}`}
          onClick={act}
          isBusy={isBusy}
        >
          {label}
        </Button>
      ))}
    </span>
  );
}
