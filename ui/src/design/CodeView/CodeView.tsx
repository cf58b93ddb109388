import { ScrollRegion } from "../ScrollRegion/ScrollRegion";
import styles from "./CodeView.module.css";

/** Source code with line numbers; `marked` lines stand out. */
export function CodeView({ code, label, marked = [] }: { code: string; label: string; marked?: number[] }) {
  const lines = code.replace(/\n$/, "").split("\n");
  return (
    <ScrollRegion className={styles.scroll} label={label}>
      <pre className={styles.code}>
        {lines.map((line, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a line is its number
          <span key={index} className={styles.line} data-marked={marked.includes(index + 1) || undefined}>
            <span className={styles.number} aria-hidden="true">
              {index + 1}
            </span>
            {line || " "}
          </span>
        ))}
      </pre>
    </ScrollRegion>
  );
}
