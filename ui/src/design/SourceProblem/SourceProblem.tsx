import { CopyButton } from "../CopyButton/CopyButton";
import { Icon } from "../Icon/Icon";
import styles from "./SourceProblem.module.css";

interface Props {
  message: string;
  file: string | null;
  line: number | null;
  /** The text of that line. */
  source_line: string | null;
}

/** A problem of someone's source: where it is, ready to paste into an editor, and what is wrong. */
export function SourceProblem({ message, file, line, source_line }: Props) {
  const at = file === null ? null : line === null ? file : `${file}:${line}`;
  return (
    <div className={styles.problem}>
      <Icon name="warning" />
      <div className={styles.text}>
        {at !== null && (
          <div className={styles.at}>
            <code>{at}</code>
            <CopyButton text={at} label={`Copy ${at}`} />
          </div>
        )}
        {source_line !== null && <code className={styles.code}>{source_line}</code>}
        <p className={styles.message}>{message}</p>
      </div>
    </div>
  );
}
