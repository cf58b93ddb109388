import { CopyButton } from "../CopyButton/CopyButton";
import styles from "./CommandLine.module.css";

/** A command for the shell, with a button that copies it. */
export function CommandLine({ command }: { command: string }) {
  return (
    <div className={styles.line}>
      <code className={styles.command}>{command}</code>
      <CopyButton text={command} label={`Copy ${command}`} />
    </div>
  );
}
