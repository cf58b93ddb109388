import { type ReactNode, useId } from "react";
import styles from "./Field.module.css";

interface Props {
  label: string;
  hint?: ReactNode;
  error?: string | undefined;
  /** The control, which gets the id that its label refers to. */
  children: (attributes: { id: string; "aria-describedby": string; "aria-invalid": boolean }) => ReactNode;
}

/** A labelled control of a form, with its hint and its error. */
export function Field({ label, hint, error, children }: Props) {
  const id = useId();
  return (
    <div className={styles.field}>
      <label className={styles.label} htmlFor={id}>
        {label}
      </label>
      {children({ id, "aria-describedby": `${id}-hint`, "aria-invalid": error !== undefined })}
      <p id={`${id}-hint`} className={error === undefined ? styles.hint : styles.error}>
        {error ?? hint}
      </p>
    </div>
  );
}
