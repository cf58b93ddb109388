import { Link } from "@tanstack/react-router";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Badge } from "@/design/Badge/Badge";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { JsonView } from "@/design/JsonView/JsonView";
import { ScrollRegion } from "@/design/ScrollRegion/ScrollRegion";
import { StateMark } from "@/design/StateMark/StateMark";
import { Time } from "@/design/Time/Time";
import { formatDuration } from "@/format/duration";
import { textOf } from "../../run/log/search";
import type { Firing } from "../firings";
import { hasKey, keyText } from "../keys";
import styles from "./FiringDetails.module.css";
import { marksOf } from "./FiringRow";

/** One firing in full: the snapshot that it saw, and what each graph made of it. */
export function FiringDetails({ firing }: { firing: Firing | undefined }) {
  if (firing === undefined) {
    return (
      <EmptyState title="This firing is no longer kept.">
        The server keeps the newest 200 firings of a reactor, and this page the ones that it has seen.
      </EmptyState>
    );
  }
  return (
    <ScrollRegion className={styles.details} label={`About firing ${firing.id}`}>
      <div className={styles.marks}>
        <Badge>
          <Time at={firing.at} />
        </Badge>
        <Badge>{formatDuration(firing.duration)}</Badge>
        {hasKey(firing) && <Badge>key {keyText(firing.key)}</Badge>}
        {marksOf(firing).map((mark) => (
          <Badge key={mark} tone={mark === "failed" ? "red" : "violet"}>
            {mark}
          </Badge>
        ))}
      </div>
      <StartedRuns firing={firing.id} />
      <div className={styles.columns}>
        <div>
          <h3 className={styles.heading}>Inputs</h3>
          <JsonView value={firing.inputs} label="Inputs of the firing" />
        </div>
        {Object.entries(firing.results).map(([graph, result]) => (
          <GraphOutcome key={graph} graph={graph} result={result} />
        ))}
      </div>
      {firing.log !== undefined && firing.log.length > 0 && <FiringOutput lines={firing.log} />}
    </ScrollRegion>
  );
}

/** The runs that the firing has started, with a link to each. */
function StartedRuns({ firing }: { firing: string }) {
  const { data } = api.useQuery("get", "/api/v1/runs", { params: { query: { started_by: firing, limit: 20 } } });
  if (data === undefined || data.items.length === 0) return null;
  return (
    <p>
      Started{" "}
      {data.items.map(({ id, workflow, state }, index) => (
        <span key={id}>
          {index > 0 && ", "}
          <Link to="/runs/$run" params={{ run: id }}>
            {workflow}
          </Link>{" "}
          <StateMark state={state} /> {state}
        </span>
      ))}
    </p>
  );
}

/** What the nodes of the firing printed, logged and warned about. */
function FiringOutput({ lines }: { lines: NonNullable<Firing["log"]> }) {
  return (
    <section aria-label="Output of the firing">
      <h3 className={styles.heading}>Output</h3>
      <div className={styles.output}>
        {lines.map((line, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a line is its position
          <p key={index} data-level={line.level}>
            <span className={styles.origin}>{line.stream === "log" ? line.level : line.stream}</span> {textOf(line)}
          </p>
        ))}
      </div>
    </section>
  );
}

function GraphOutcome({ graph, result }: { graph: string; result: Schema<"GraphResultView"> }) {
  return (
    <div>
      <h3 className={styles.heading}>Outputs of {graph}</h3>
      {result.error && <Failure failure={result.error} />}
      <p className={styles.route}>
        {result.ran.join(" → ") || "No node ran"}
        {result.skipped.length > 0 && (
          <>
            {" · skipped "}
            <span className={styles.skipped}>{result.skipped.join(", ")}</span>
          </>
        )}
      </p>
      <JsonView value={result.outputs} label={`Outputs of ${graph}`} />
    </div>
  );
}

function Failure({ failure }: { failure: Schema<"NodeFailure"> }) {
  return (
    <div className={styles.error}>
      <p>{failure.message}</p>
      <details>
        <summary>Traceback</summary>
        {failure.traceback}
      </details>
    </div>
  );
}
