import { type ReactNode, useEffect } from "react";
import { Fold } from "../Fold/Fold";
import styles from "./Page.module.css";

interface Props {
  title: string;
  /** Beside the title: state, version, ... */
  mark?: ReactNode;
  /** Below the title, in one line. */
  subtitle?: ReactNode;
  actions?: ReactNode;
  /** The page fills the screen and scrolls inside its parts. */
  isFull?: boolean;
  children: ReactNode;
}

/** The frame of every page: title, what can be done, content. */
export function Page({ title, mark, subtitle, actions, isFull = false, children }: Props) {
  useEffect(() => {
    document.title = `${title} · Tidemill`;
  }, [title]);
  return (
    <div className={styles.page} data-full={isFull || undefined}>
      <header className={styles.header}>
        <div className={styles.heading}>
          <h1 className={styles.title} title={title}>
            {title}
          </h1>
          {mark}
          {subtitle !== undefined && (
            <div className={styles.subtitle}>
              <Fold lines={2} what="reason">
                {subtitle}
              </Fold>
            </div>
          )}
        </div>
        {actions !== undefined && <div className={styles.actions}>{actions}</div>}
      </header>
      {children}
    </div>
  );
}
