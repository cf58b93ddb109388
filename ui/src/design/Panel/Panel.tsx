import { type ReactNode, useId } from "react";
import styles from "./Panel.module.css";

interface Props {
  title?: ReactNode;
  /** At the right of the title: a count, a link, a button. */
  aside?: ReactNode;
  /** The content reaches the edges, as a table does. */
  isFlush?: boolean;
  className?: string | undefined;
  children: ReactNode;
}

/** A titled part of a page. */
export function Panel({ title, aside, isFlush = false, className, children }: Props) {
  const id = useId();
  return (
    <section
      className={[styles.panel, className].filter(Boolean).join(" ")}
      aria-labelledby={title === undefined ? undefined : id}
    >
      {title !== undefined && (
        <header className={styles.header}>
          <h2 id={id} className={styles.title}>
            {title}
          </h2>
          {aside !== undefined && <div className={styles.aside}>{aside}</div>}
        </header>
      )}
      <div className={isFlush ? styles.flush : styles.body}>{children}</div>
    </section>
  );
}
