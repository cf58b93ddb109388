import type { Schema } from "@/api/types";
import { CopyButton } from "@/design/CopyButton/CopyButton";
import { Fold } from "@/design/Fold/Fold";
import styles from "./ErrorText.module.css";

/** The error of a task: class and message, and the traceback on demand. */
export function ErrorText({ error }: { error: Schema<"TaskError"> }) {
  const title = error.message === "" ? error.type : `${error.type}: ${error.message}`;
  return (
    <div className={styles.error}>
      <Fold lines={4} what="error">
        <p className={styles.title}>{title}</p>
      </Fold>
      {error.traceback !== "" && (
        <details>
          <summary>Traceback</summary>
          <div className={styles.trace}>
            {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard */}
            <pre tabIndex={0}>{error.traceback}</pre>
            <span className={styles.copy}>
              <CopyButton text={`${error.traceback}`} label="Copy the traceback" />
            </span>
          </div>
        </details>
      )}
    </div>
  );
}
