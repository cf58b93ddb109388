import { api } from "@/api/client";
import { useMayWrite } from "@/app/useMe";
import { Answer } from "@/design/Answer/Answer";
import { Button } from "@/design/Button/Button";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Panel } from "@/design/Panel/Panel";
import { plural } from "@/format/number";
import { DeadLetterList } from "../deadLetters/DeadLetterList";
import { useDeadLetters } from "../deadLetters/useDeadLetters";

const SHOWN = 200;

/** What the reactor and its accumulators could not process: why, with what, and a second chance for each. */
export function DeadLettersTab({ name }: { name: string }) {
  const letters = api.useQuery("get", "/api/v1/reactors/{name}/dead-letters", {
    params: { path: { name }, query: { limit: SHOWN } },
  });
  const { replayAll, isReplayingAll } = useDeadLetters(name);
  const mayWrite = useMayWrite();
  const items = letters.data?.items ?? [];
  const aside = (
    <>
      {letters.data && plural(letters.data.total, "dead letter")}
      {mayWrite && items.length > 1 && (
        <Button isBusy={isReplayingAll} onClick={() => replayAll(items)}>
          Replay {items.length === letters.data?.total ? "all" : `the newest ${items.length}`}
        </Button>
      )}
    </>
  );
  return (
    <Panel title="Dead letters" aside={aside} isFlush>
      <Answer query={letters}>
        {({ items }) =>
          items.length > 0 ? (
            <DeadLetterList reactor={name} letters={items} mayWrite={mayWrite} />
          ) : (
            <EmptyState title="There is no dead letter.">
              Events of a wrong type, firings that failed for good and runs that could not be started are kept here, to
              be inspected and replayed.
            </EmptyState>
          )
        }
      </Answer>
    </Panel>
  );
}
