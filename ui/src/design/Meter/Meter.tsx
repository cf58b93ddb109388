import styles from "./Meter.module.css";

/** How much of something is used: a bar, and the figures beside it. A full bar is amber. */
export function Meter({ used, size, label }: { used: number; size: number; label: string }) {
  const share = size > 0 ? Math.min(1, used / size) : 0;
  return (
    <span className={styles.meter}>
      <span className={styles.track} role="img" aria-label={`${label}: ${used} of ${size}`}>
        <span className={styles.fill} data-full={share >= 1 || undefined} style={{ width: `${share * 100}%` }} />
      </span>
      <span className={styles.figures} aria-hidden="true">
        {used} / {size}
      </span>
    </span>
  );
}
