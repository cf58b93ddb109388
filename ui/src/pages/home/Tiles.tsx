import { Link } from "@tanstack/react-router";
import type { Schema } from "@/api/types";
import { formatCount } from "@/format/number";
import styles from "./Tiles.module.css";
import { tilesOf } from "./tileFigures";

/** The state of everything in six figures, each a link to what it counts. */
export function Tiles({ overview }: { overview: Schema<"Overview"> }) {
  return (
    <ul className={styles.tiles}>
      {tilesOf(overview).map(({ label, count, tone, to, search }) => (
        <li key={label}>
          <Link to={to} search={search ?? {}} className={styles.tile} data-tone={count > 0 ? tone : "none"}>
            <span className={styles.count}>{formatCount(count)}</span>
            <span className={styles.label}>{label}</span>
          </Link>
        </li>
      ))}
    </ul>
  );
}
