import type { Schema } from "@/api/types";
import { About } from "@/design/About/About";
import { Facts } from "@/design/Facts/Facts";
import { JsonView } from "@/design/JsonView/JsonView";
import { ScrollRegion } from "@/design/ScrollRegion/ScrollRegion";
import { Time } from "@/design/Time/Time";
import { figuresOf, nodeActivity } from "../graph/activity";
import type { NodeBox } from "../graph/reactorGraph";
import type { LiveReactor } from "../useLiveReactor";
import styles from "./Selection.module.css";

/** One node: what it reads and returns, where its result goes, and its last output. */
export function NodePanel({ box, reactor }: { box: NodeBox; reactor: LiveReactor }) {
  const { firings } = reactor;
  const { node, graph } = box;
  const [rate, p99] = figuresOf(nodeActivity(firings).get(box.id), reactor.rates.fires ?? 0);
  const last = firings.find((firing) => firing.results[graph]?.ran.includes(node.name));
  return (
    <ScrollRegion className={styles.selection} label={`About node ${node.name}`}>
      <About owner={node.owner} description={node.description} />
      <Facts
        facts={[
          ["Graph", graph],
          ["Rate", rate],
          ["p99 of its firings", p99],
          ["Returns", node.returns],
          ["Kind", `${node.is_async ? "async " : ""}${node.is_terminal ? "terminal node" : "inner node"}`],
          ["Feeds", node.feeds ?? "nothing"],
          ["Last run", last ? <Time key="last" at={last.at} isRelative /> : "not seen"],
        ]}
      />
      <div>
        <h3 className={styles.heading}>Reads</h3>
        <ul className={styles.list}>
          {node.inputs.map((input) => (
            <li key={input.parameter}>
              <code>
                {input.parameter}: {input.type}
              </code>{" "}
              from {input.origin} {input.source}
              {input.optional && ", optional"}
            </li>
          ))}
        </ul>
      </div>
      <Routes routes={node.routes} />
      {node.is_terminal ? (
        <div>
          <h3 className={styles.heading}>Last output</h3>
          <JsonView value={last?.results[graph]?.outputs[node.name] ?? null} label={`Last output of ${node.name}`} />
        </div>
      ) : (
        <p className={styles.heading}>Outputs of inner nodes are not kept; those of terminal nodes are.</p>
      )}
    </ScrollRegion>
  );
}

function Routes({ routes }: { routes: Schema<"GraphNodeView">["routes"] }) {
  const entries = Object.entries(routes);
  if (entries.length === 0) return null;
  return (
    <div>
      <h3 className={styles.heading}>Routes</h3>
      <ul className={styles.list}>
        {entries.map(([name, targets]) => (
          <li key={name}>
            <code>{name}</code> → {targets.join(", ") || "nothing"}
          </li>
        ))}
      </ul>
    </div>
  );
}
