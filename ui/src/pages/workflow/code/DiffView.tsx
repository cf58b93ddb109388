import { useMemo } from "react";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { ScrollRegion } from "@/design/ScrollRegion/ScrollRegion";
import { plural } from "@/format/number";
import styles from "./DiffView.module.css";
import { type DiffPart, diffLines, foldSame } from "./diff";

const SIGNS = { same: " ", removed: "-", added: "+" };

/** Two versions of a file: removed and added lines with their numbers, far lines folded. */
export function DiffView({ before, after, label }: { before: string; after: string; label: string }) {
  const parts = useMemo(() => foldSame(diffLines(before, after)), [before, after]);
  if (parts.every((part) => part.kind === "gap"))
    return (
      <EmptyState title="The source of these versions is the same.">Their structure or options differ.</EmptyState>
    );
  return (
    <ScrollRegion className={styles.scroll} label={label}>
      <pre className={styles.diff}>
        {parts.map((part) => (
          <Line key={keyOf(part)} part={part} />
        ))}
      </pre>
    </ScrollRegion>
  );
}

function keyOf(part: DiffPart): string {
  return part.kind === "gap" ? `gap ${part.at}` : `${part.before} ${part.after}`;
}

function Line({ part }: { part: DiffPart }) {
  if (part.kind === "gap") return <span className={styles.gap}>{plural(part.count, "equal line")}</span>;
  const Element = { same: "span", removed: "del", added: "ins" }[part.kind] as "span" | "del" | "ins";
  return (
    <Element className={styles.line} data-kind={part.kind}>
      <span className={styles.number}>{part.before}</span>
      <span className={styles.number}>{part.after}</span>
      <span className={styles.sign}>{SIGNS[part.kind]}</span>
      {part.text || " "}
    </Element>
  );
}
