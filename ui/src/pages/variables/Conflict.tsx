import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Answer } from "@/design/Answer/Answer";
import { Button } from "@/design/Button/Button";
import { JsonView } from "@/design/JsonView/JsonView";
import { Time } from "@/design/Time/Time";
import styles from "./Conflict.module.css";

type Variable = Schema<"Variable">;

interface Props {
  name: string;
  onKeepMine: (current: Variable) => void;
  onTakeTheirs: (current: Variable) => void;
}

/** Another person has changed the variable since the form was opened: what it is now, and what shall become of it. */
export function Conflict({ name, onKeepMine, onTakeTheirs }: Props) {
  const query = api.useQuery("get", "/api/v1/variables/{name}", { params: { path: { name } } }, { staleTime: 0 });
  return (
    <section className={styles.conflict} role="alert" aria-label="Conflict">
      <Answer query={query}>
        {(current) => (
          <>
            <p>
              {current.updated_by} has changed this variable <Time at={current.updated_at} isRelative />, after you
              opened it. Nothing was saved. It is now:
            </p>
            <JsonView value={current.value} label="The value that is stored" />
            <div className={styles.choices}>
              <Button onClick={() => onTakeTheirs(current)}>Start again from this value</Button>
              <Button onClick={() => onKeepMine(current)}>Keep mine, to save it over this one</Button>
            </div>
          </>
        )}
      </Answer>
    </section>
  );
}
