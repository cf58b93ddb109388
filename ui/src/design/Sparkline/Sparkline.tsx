import styles from "./Sparkline.module.css";

const WIDTH = 100;
const HEIGHT = 24;

interface Props {
  /** At equal distances, the newest last; null where the value is not known. */
  values: (number | null)[];
  label: string;
}

/** The course of a number, without axes; the label says what it is and how large it is now. */
export function Sparkline({ values, label }: Props) {
  const points = pointsOf(values);
  const [left = 0] = points[0] ?? [];
  const [right = 0] = points.at(-1) ?? [];
  const line = points.map((point) => point.join()).join(" ");
  return (
    <svg
      className={styles.sparkline}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <polygon className={styles.area} points={`${left},${HEIGHT} ${line} ${right},${HEIGHT}`} />
      <polyline className={styles.line} points={line} />
    </svg>
  );
}

function pointsOf(values: (number | null)[]): [x: number, y: number][] {
  const highest = Math.max(1e-9, ...values.map((value) => value ?? 0));
  const step = WIDTH / Math.max(1, values.length - 1);
  return values.flatMap((value, index): [number, number][] =>
    value === null ? [] : [[index * step, HEIGHT - 1 - (value / highest) * (HEIGHT - 3)]],
  );
}
