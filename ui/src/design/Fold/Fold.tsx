import { type ReactNode, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import styles from "./Fold.module.css";

interface Props {
  /** Lines that are shown before it is unfolded. */
  lines: number;
  /** What it is, for the button: "error", "params". */
  what: string;
  children: ReactNode;
}

/** A text that may be long: its first lines, and all of it on demand. */
export function Fold({ lines, what, children }: Props) {
  const content = useRef<HTMLDivElement>(null);
  const [isOpen, setOpen] = useState(false);
  const [isLong, setLong] = useState(false);
  const measure = useCallback(() => {
    const element = content.current;
    if (element !== null && !isOpen) setLong(element.scrollHeight > element.clientHeight + 1);
  }, [isOpen]);
  useLayoutEffect(measure);
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    if (content.current !== null) observer.observe(content.current);
    return () => observer.disconnect();
  }, [measure]);
  return (
    <div className={styles.fold}>
      <div
        ref={content}
        className={styles.content}
        data-folded={!isOpen || undefined}
        style={isOpen ? undefined : { WebkitLineClamp: lines }}
      >
        {children}
      </div>
      {isLong && (
        <button type="button" className={styles.button} aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? `Fold the ${what}` : `Show all of the ${what}`}
        </button>
      )}
    </div>
  );
}
