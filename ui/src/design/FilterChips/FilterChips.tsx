import type { ReactNode } from "react";
import styles from "./FilterChips.module.css";

export interface Chip {
  id: string;
  label: ReactNode;
  isOn: boolean;
}

/** A row of choices that can be switched on and off. */
export function FilterChips({
  label,
  chips,
  onToggle,
}: {
  label: string;
  chips: Chip[];
  onToggle: (id: string) => void;
}) {
  return (
    <fieldset className={styles.chips} aria-label={label}>
      {chips.map((chip) => (
        <button
          key={chip.id}
          type="button"
          className={styles.chip}
          aria-pressed={chip.isOn}
          onClick={() => onToggle(chip.id)}
        >
          {chip.label}
        </button>
      ))}
    </fieldset>
  );
}
