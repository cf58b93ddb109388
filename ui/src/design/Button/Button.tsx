import type { ButtonHTMLAttributes } from "react";
import styles from "./Button.module.css";

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: "primary" | "plain" | "quiet" | "danger";
  /** The action is in progress: the button is disabled, and says so. */
  isBusy?: boolean;
}

export function Button({ look = "plain", isBusy = false, className, children, ...rest }: Props) {
  return (
    <button
      type="button"
      {...rest}
      className={[styles.button, className].filter(Boolean).join(" ")}
      data-look={look}
      aria-busy={isBusy || undefined}
      disabled={isBusy || rest.disabled}
    >
      {children}
    </button>
  );
}
