import type { Schema } from "@/api/types";
import { About } from "@/design/About/About";
import { CodeView } from "@/design/CodeView/CodeView";
import { CopyButton } from "@/design/CopyButton/CopyButton";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Panel } from "@/design/Panel/Panel";
import styles from "./LatencyTab.module.css";

/** The function that each bound graph is compiled to. */
export function SourceTab({ graphs }: { graphs: Schema<"GraphDetails">[] }) {
  if (graphs.length === 0) {
    return (
      <Panel>
        <EmptyState title="No graph is bound to this reactor.">
          A graph is bound by its declaration: <code>tm.Graph("name", reactor=...)</code>.
        </EmptyState>
      </Panel>
    );
  }
  return (
    <div className={styles.plots}>
      {graphs.map(({ name, source, nodes, owner, description }) => (
        <Panel
          key={name}
          title={`${name}, compiled`}
          aside={
            <>
              {nodes.length} nodes in one function
              <CopyButton text={source} label={`Copy the source of ${name}`} />
            </>
          }
          isFlush
        >
          {(owner || description) && (
            <div className={styles.about}>
              <About owner={owner} description={description} />
            </div>
          )}
          <CodeView code={source} label={`Generated source of ${name}`} />
        </Panel>
      ))}
    </div>
  );
}
