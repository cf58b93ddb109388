import { Link } from "@tanstack/react-router";
import { Badge } from "@/design/Badge/Badge";
import { Icon } from "@/design/Icon/Icon";
import { Panel } from "@/design/Panel/Panel";
import { Time } from "@/design/Time/Time";
import { plural } from "@/format/number";
import styles from "./AttentionList.module.css";
import type { Attention } from "./attention";

/** What needs a person, each with its reason and a link to what explains it. */
export function AttentionList({ items, className }: { items: Attention[]; className?: string | undefined }) {
  return (
    <Panel
      title="Needs attention"
      aside={items.length > 0 && plural(items.length, "item")}
      isFlush
      className={className}
    >
      {items.length === 0 ? (
        <AllWell />
      ) : (
        <ul>
          {items.map((item) => (
            <Item key={item.key} item={item} />
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Item({ item: { kind, tone, title, reason, since, to, search } }: { item: Attention }) {
  return (
    <li className={styles.item}>
      <div className={styles.head}>
        <Badge tone={tone}>{kind.replaceAll("_", " ")}</Badge>
        <Link to={to} search={search ?? {}} className={styles.title}>
          {title}
        </Link>
        <span className={styles.since}>{since !== null && <Time at={since} isRelative />}</span>
      </div>
      <p className={styles.reason} title={reason}>
        {reason}
      </p>
    </li>
  );
}

function AllWell() {
  return (
    <div className={styles.well}>
      <Icon name="check" size={20} />
      <p>Nothing has failed, nothing is late or waits, and every reactor is live.</p>
    </div>
  );
}
