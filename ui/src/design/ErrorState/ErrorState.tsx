import { messageOf, Problem } from "@/api/problem";
import { Button } from "../Button/Button";
import styles from "./ErrorState.module.css";

/** What a part of a page shows if its answer failed: what the server said, its code, and a way to ask again. */
export function ErrorState({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const problem = error instanceof Problem ? error : null;
  return (
    <div className={styles.error} role="alert">
      <p>{messageOf(error)}</p>
      {problem?.suggestions.length ? <p>Did you mean {problem.suggestions.join(", ")}?</p> : null}
      {problem && (
        <p className={styles.code}>
          {problem.code}
          {problem.requestId !== null && ` · request ${problem.requestId}`}
        </p>
      )}
      {onRetry && <Button onClick={onRetry}>Try again</Button>}
    </div>
  );
}
