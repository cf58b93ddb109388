import { Link } from "@tanstack/react-router";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { formatDuration } from "@/format/duration";
import styles from "./TriggerSource.module.css";

/** What a trigger watches: a reactor, a node of a graph, or a function and how often it is polled. */
export function TriggerSource({ trigger }: { trigger: Schema<"TriggerInfo"> }) {
  return (
    <>
      <Watched trigger={trigger} />
      <span className={styles.limits}>{limitsOf(trigger).join(" · ")}</span>
    </>
  );
}

function Watched({ trigger: { reactor, graph, node, every } }: { trigger: Schema<"TriggerInfo"> }) {
  if (reactor != null) {
    return (
      <Link to="/reactors/$name" params={{ name: reactor }}>
        reactor {reactor}
      </Link>
    );
  }
  if (graph != null) return <WatchedNode graph={graph} node={node ?? ""} />;
  return every == null ? null : <span>a function, polled every {formatDuration(every)}</span>;
}

/** A node of a graph, which its reactor's page draws. */
function WatchedNode({ graph, node }: { graph: string; node: string }) {
  const { data } = api.useQuery("get", "/api/v1/graphs", { params: { query: { limit: 500 } } });
  const reactor = data?.items.find(({ name }) => name === graph)?.reactor;
  const text = `node ${node} of graph ${graph}`;
  if (reactor == null) return <span>{text}</span>;
  return (
    <Link to="/reactors/$name" params={{ name: reactor }}>
      {text}
    </Link>
  );
}

function limitsOf({ when, cooldown, dedup, timeout, allow_concurrent }: Schema<"TriggerInfo">): string[] {
  return [
    when != null && `when ${when}`,
    cooldown != null && cooldown > 0 && `at most once in ${formatDuration(cooldown)}`,
    dedup != null && `once per ${dedup}`,
    timeout != null && `gives up after ${formatDuration(timeout)}`,
    allow_concurrent === true && "polls may overlap",
  ].filter((text) => typeof text === "string");
}
