import { Link } from "@tanstack/react-router";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Answer } from "@/design/Answer/Answer";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { FiringSparkline } from "@/design/FiringSparkline/FiringSparkline";
import { Panel } from "@/design/Panel/Panel";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { formatCompact, formatRate } from "@/format/number";
import { useFirings } from "@/live/LiveProvider";
import styles from "./ReactorRates.module.css";

const SHOWN = 50;

/** The reactors, with the firings of each in the last minute: it moves every second. */
export function ReactorRates({ className }: { className?: string | undefined }) {
  const reactors = api.useQuery("get", "/api/v1/reactors", { params: { query: { limit: SHOWN } } });
  return (
    <Panel title="Reactors" aside={<Link to="/reactors">All reactors</Link>} isFlush className={className}>
      <Answer query={reactors}>
        {({ items }) =>
          items.length === 0 ? (
            <EmptyState title="No reactor is loaded.">A reactor calls a graph whenever its events arrive.</EmptyState>
          ) : (
            <ul>
              {items.map((reactor) => (
                <Reactor key={reactor.name} reactor={reactor} />
              ))}
            </ul>
          )
        }
      </Answer>
    </Panel>
  );
}

function Reactor({ reactor: { name, health, paused, fires } }: { reactor: Schema<"ReactorState"> }) {
  const { rate, total } = useFirings(name);
  return (
    <li className={styles.reactor}>
      <Link to="/reactors/$name" params={{ name }} className={styles.name}>
        {name}
      </Link>
      <StateBadge state={paused ? "paused" : health} />
      <div className={styles.course}>
        <FiringSparkline name={name} />
      </div>
      <span className={styles.rate}>{formatRate(rate)}</span>
      <span className={styles.fires}>{formatCompact(total ?? fires)} firings</span>
    </li>
  );
}
