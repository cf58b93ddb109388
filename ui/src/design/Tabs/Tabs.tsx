import { Link } from "@tanstack/react-router";
import styles from "./Tabs.module.css";

export interface Tab {
  id: string;
  label: string;
  count?: number;
}

/** The parts of a page; the chosen one is in the address (`?tab=`), so that a link leads to it. */
export function Tabs({ tabs, current }: { tabs: Tab[]; current: string }) {
  return (
    <nav className={styles.tabs} aria-label="Parts of this page">
      {tabs.map((tab) => (
        <Link
          key={tab.id}
          to="."
          search={(search: Record<string, unknown>) => ({ ...search, tab: tab.id })}
          replace
          className={styles.tab}
          aria-current={tab.id === current ? "page" : undefined}
          activeProps={{}}
        >
          {tab.label}
          {tab.count !== undefined && <span className={styles.count}>{tab.count}</span>}
        </Link>
      ))}
    </nav>
  );
}
