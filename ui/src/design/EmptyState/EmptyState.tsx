import type { ReactNode } from "react";
import { CommandLine } from "../CommandLine/CommandLine";
import styles from "./EmptyState.module.css";

interface Props {
  title: string;
  children?: ReactNode;
  /** Commands that lead on, ready to copy. */
  commands?: string[];
}

/** What a part of a page shows while there is nothing to show: why, and what to do next. */
export function EmptyState({ title, children, commands = [] }: Props) {
  return (
    <div className={styles.empty}>
      <p className={styles.title}>{title}</p>
      {children !== undefined && <div className={styles.text}>{children}</div>}
      {commands.map((command) => (
        <CommandLine key={command} command={command} />
      ))}
    </div>
  );
}
