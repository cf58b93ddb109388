import type { ReactNode } from "react";
import type { Tone } from "../tone";
import styles from "./Badge.module.css";

/** A short word on a tinted ground. */
export function Badge({ tone = "grey", children }: { tone?: Tone; children: ReactNode }) {
  return (
    <span className={styles.badge} data-tone={tone}>
      {children}
    </span>
  );
}
