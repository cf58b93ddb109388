/** The pages of the product: what the sidebar, the command palette and the shortcuts lead to. */

import type { IconName } from "@/design/Icon/Icon";

export interface Destination {
  path: string;
  label: string;
  icon: IconName;
  /** The key after `g`. */
  key?: string;
  /** Other words that people may look for. */
  words?: string;
  needs?: "admin" | "instance";
}

export const NAVIGATION: { title: string; items: Destination[] }[] = [
  {
    title: "",
    items: [{ path: "/", label: "Home", icon: "home", key: "h", words: "overview dashboard" }],
  },
  {
    title: "Graphs",
    items: [{ path: "/reactors", label: "Reactors", icon: "reactor", key: "e", words: "graphs accumulators events" }],
  },
  {
    title: "Workflows",
    items: [
      { path: "/workflows", label: "Workflows", icon: "workflow", key: "w", words: "dags" },
      { path: "/runs", label: "Runs", icon: "run", key: "r", words: "executions history" },
      { path: "/schedules", label: "Schedules", icon: "schedule", key: "s", words: "cron calendar" },
      { path: "/triggers", label: "Triggers", icon: "trigger", key: "t" },
      { path: "/backfills", label: "Backfills", icon: "backfill", key: "b" },
    ],
  },
  {
    title: "Platform",
    items: [
      { path: "/packages", label: "Packages", icon: "package", key: "p", words: "import errors deploy" },
      { path: "/nodes", label: "Nodes", icon: "node", key: "n", words: "workers leader servers" },
      { path: "/pools", label: "Pools", icon: "pool", words: "slots limits" },
      { path: "/variables", label: "Variables", icon: "variable", key: "v" },
      { path: "/secrets", label: "Secrets", icon: "secret" },
    ],
  },
  {
    title: "Admin",
    items: [
      { path: "/tenants", label: "Tenants", icon: "tenant" },
      { path: "/keys", label: "Keys", icon: "key", needs: "admin", words: "api tokens" },
      { path: "/accounts", label: "Accounts", icon: "account", needs: "admin", words: "people users" },
      { path: "/audit", label: "Audit log", icon: "audit", key: "a", needs: "admin" },
      { path: "/system", label: "System", icon: "system", key: "y", words: "storage retention metrics health" },
    ],
  },
];
