import { useState } from "react";
import { ROOT } from "@/api/root";
import type { Schema } from "@/api/types";
import { Badge } from "@/design/Badge/Badge";
import { Button } from "@/design/Button/Button";
import { ConfirmDialog } from "@/design/ConfirmDialog/ConfirmDialog";
import { JsonView } from "@/design/JsonView/JsonView";
import { Time } from "@/design/Time/Time";
import { hasKey, keyText } from "../keys";
import styles from "./DeadLetterList.module.css";
import { useDeadLetters } from "./useDeadLetters";

type DeadLetter = Schema<"DeadLetter">;

interface Props {
  reactor: string;
  letters: DeadLetter[];
  mayWrite: boolean;
}

/** Dead letters, newest first: error, event or inputs, replay and delete. */
export function DeadLetterList({ reactor, letters, mayWrite }: Props) {
  const { replay, drop } = useDeadLetters(reactor);
  const [asking, setAsking] = useState<DeadLetter | null>(null);
  return (
    <>
      <ul className={styles.list}>
        {letters.map((letter) => (
          <li key={letter.id} className={styles.letter}>
            <div className={styles.head}>
              <Badge tone="amber">{letter.kind}</Badge>
              <strong>{letter.source}</strong>
              <Time at={letter.at} />
              {letter.attempts > 1 && <span>{letter.attempts} attempts</span>}
              {hasKey(letter) && <span>key {keyText(letter.key)}</span>}
              {letter.workflow && <span>workflow {letter.workflow}</span>}
              {mayWrite && (
                <span className={styles.buttons}>
                  <Button onClick={() => void replay(letter)}>Replay</Button>
                  <Button look="danger" onClick={() => setAsking(letter)}>
                    Delete…
                  </Button>
                </span>
              )}
            </div>
            <p className={styles.error}>{letter.error}</p>
            <JsonView value={letter.inputs ?? letter.event} label={`What dead letter ${letter.id} holds`} />
            {Object.entries(letter.omitted ?? {}).map(([path, size]) => (
              <p key={path}>
                <code>{path}</code> has {size} bytes and is not shown here:{" "}
                <a href={`${ROOT}/api/v1/reactors/${encodeURIComponent(reactor)}/dead-letters/${letter.id}`}>
                  see all of it
                </a>
              </p>
            ))}
          </li>
        ))}
      </ul>
      {asking && (
        <ConfirmDialog
          title="Delete this dead letter?"
          action="Delete"
          onConfirm={() => void drop(asking).then(() => setAsking(null))}
          onClose={() => setAsking(null)}
        >
          The {asking.kind} of {asking.source} is lost for good: it cannot be replayed afterwards.
        </ConfirmDialog>
      )}
    </>
  );
}
