import { Link } from "@tanstack/react-router";
import { formatCount } from "@/format/number";
import styles from "./Tabs.module.css";

export interface Tab {
  id: string;
  label: string;
  count?: number;
}

interface Props {
  tabs: Tab[];
  current: string;
  label?: string;
  /** The name in the address, for a part of a page that has tabs of its own. */
  param?: string;
}

/** The parts of a page; the chosen one is in the address (`?tab=`), so that a link leads to it. */
export function Tabs({ tabs, current, label = "Parts of this page", param = "tab" }: Props) {
  return (
    <nav className={styles.tabs} aria-label={label}>
      {tabs.map((tab) => (
        <Link
          key={tab.id}
          to="."
          search={(search: Record<string, unknown>) => ({ ...search, [param]: tab.id })}
          className={styles.tab}
          aria-current={tab.id === current ? "page" : undefined}
          activeProps={{}}
        >
          {tab.label}
          {tab.count !== undefined && <span className={styles.count}>{formatCount(tab.count)}</span>}
        </Link>
      ))}
    </nav>
  );
}
