import styles from "./Sparkline.module.css";

const WIDTH = 100;
const HEIGHT = 24;

/** The course of a number, without axes; the label says what it is and how large it is now. */
export function Sparkline({ values, label }: { values: number[]; label: string }) {
  const highest = Math.max(...values, 1e-9);
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, index) => `${index * step},${HEIGHT - 1 - (value / highest) * (HEIGHT - 3)}`);
  return (
    <svg
      className={styles.sparkline}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <polygon className={styles.area} points={`0,${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`} />
      <polyline className={styles.line} points={points.join(" ")} />
    </svg>
  );
}
