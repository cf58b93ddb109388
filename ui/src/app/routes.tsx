/** The address of every page. Each page is a file of its own that is loaded when it is opened. */

import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";
import { ROOT } from "@/api/root";
import { Root } from "./Root";
import { NotFound, PageError } from "./RouteStates";
import { parseSearch, stringifySearch } from "./search";

const root = createRootRoute({ component: Root, notFoundComponent: NotFound });

function page(path: string, load: () => Promise<Record<string, unknown>>, name: string) {
  return createRoute({
    getParentRoute: () => root,
    path,
    component: lazyRouteComponent(load, name),
    // The page of another reactor or run begins anew: nothing of the one before stays under its name.
    remountDeps: ({ params }) => params,
  });
}

const pages = [
  page("/", () => import("@/pages/home/HomePage"), "HomePage"),
  page("/reactors", () => import("@/pages/reactors/ReactorsPage"), "ReactorsPage"),
  page("/reactors/$name", () => import("@/pages/reactor/ReactorPage"), "ReactorPage"),
  page("/workflows", () => import("@/pages/workflows/WorkflowsPage"), "WorkflowsPage"),
  page("/workflows/$name", () => import("@/pages/workflow/WorkflowPage"), "WorkflowPage"),
  page("/runs", () => import("@/pages/runs/RunsPage"), "RunsPage"),
  page("/runs/$run", () => import("@/pages/run/RunPage"), "RunPage"),
  page("/schedules", () => import("@/pages/schedules/SchedulesPage"), "SchedulesPage"),
  page("/triggers", () => import("@/pages/triggers/TriggersPage"), "TriggersPage"),
  page("/backfills", () => import("@/pages/backfills/BackfillsPage"), "BackfillsPage"),
  page("/packages", () => import("@/pages/packages/PackagesPage"), "PackagesPage"),
  page("/packages/$name", () => import("@/pages/package/PackagePage"), "PackagePage"),
  page("/nodes", () => import("@/pages/nodes/NodesPage"), "NodesPage"),
  page("/pools", () => import("@/pages/pools/PoolsPage"), "PoolsPage"),
  page("/variables", () => import("@/pages/variables/VariablesPage"), "VariablesPage"),
  page("/secrets", () => import("@/pages/secrets/SecretsPage"), "SecretsPage"),
  page("/tenants", () => import("@/pages/tenants/TenantsPage"), "TenantsPage"),
  page("/keys", () => import("@/pages/keys/KeysPage"), "KeysPage"),
  page("/accounts", () => import("@/pages/accounts/AccountsPage"), "AccountsPage"),
  page("/audit", () => import("@/pages/audit/AuditPage"), "AuditPage"),
  page("/system", () => import("@/pages/system/SystemPage"), "SystemPage"),
];

export function makeRouter() {
  return createRouter({
    routeTree: root.addChildren(pages),
    basepath: ROOT || "/",
    defaultPreload: "intent",
    defaultErrorComponent: PageError,
    scrollRestoration: true,
    parseSearch,
    stringifySearch,
  });
}
