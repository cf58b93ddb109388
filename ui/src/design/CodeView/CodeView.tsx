import { memo } from "react";
import { ScrollRegion } from "../ScrollRegion/ScrollRegion";
import styles from "./CodeView.module.css";
import { highlightPython } from "./highlight";

/** Source code in Python with line numbers; `marked` lines stand out. */
export function CodeView({ code, label, marked = [] }: { code: string; label: string; marked?: number[] }) {
  return (
    <ScrollRegion className={styles.scroll} label={label}>
      <Lines code={code.replace(/\n$/, "")} marked={marked.join()} />
    </ScrollRegion>
  );
}

const Lines = memo(function Lines({ code, marked }: { code: string; marked: string }) {
  const numbers = new Set(marked.split(",").map(Number));
  return (
    <pre className={styles.code}>
      {highlightPython(code).map((tokens, line) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a line is its number
        <span key={line} className={styles.line} data-marked={numbers.has(line + 1) || undefined}>
          <span className={styles.number} aria-hidden="true">
            {line + 1}
          </span>
          {tokens.length === 0 && " "}
          {tokens.map(({ text, kind }, index) =>
            kind === null ? (
              text
            ) : (
              // biome-ignore lint/suspicious/noArrayIndexKey: a token is its position
              <span key={index} className={styles.token} data-kind={kind}>
                {text}
              </span>
            ),
          )}
        </span>
      ))}
    </pre>
  );
});
