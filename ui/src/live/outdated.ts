/** Which answers an event makes out of date: paths of the API, and the run, reactor or workflow they must be about. */

import type { FeedEvent } from "./feed";

export interface Outdated {
  /** A path of the API; answers of all paths below it are out of date too. */
  path: string;
  /** Values that the answer's path parameters must have; an answer without such a parameter matches. */
  about?: Record<string, unknown>;
}

const OVERVIEW: Outdated = { path: "/api/v1/overview" };

/** The paths that changes make outdated, by the noun of their action: `pool.set` is about pools. */
const CHANGED: Record<string, string[]> = {
  workflow: ["/api/v1/workflows", "/api/v1/schedules", "/api/v1/overview"],
  trigger: ["/api/v1/triggers", "/api/v1/workflows"],
  reactor: ["/api/v1/reactors", "/api/v1/graphs", "/api/v1/overview"],
  accumulator: ["/api/v1/accumulators", "/api/v1/reactors"],
  dead_letter: ["/api/v1/accumulators", "/api/v1/reactors", "/api/v1/overview"],
  package: ["/api/v1/packages", "/api/v1/import-errors"],
  run: ["/api/v1/runs"],
  backfill: ["/api/v1/backfills"],
  pool: ["/api/v1/pools"],
  variable: ["/api/v1/variables"],
  secret: ["/api/v1/secrets"],
  key: ["/api/v1/keys"],
  account: ["/api/v1/accounts"],
  tenant: ["/api/v1/tenants"],
};

function outdatedByChange({ action }: FeedEvent): Outdated[] {
  const [noun = ""] = String(action).split(".");
  return ["/api/v1/audit", ...(CHANGED[noun] ?? [])].map((path) => ({ path }));
}

/** One entry per type of event; `type.*` stands for all types of that kind. */
const TABLE: Record<string, (event: FeedEvent) => Outdated[]> = {
  "run.*": (event) => [
    { path: "/api/v1/runs", about: { run: event.run } },
    // The run of a handler tells the run that it was called for.
    { path: "/api/v1/runs/{run}/handlers" },
    { path: "/api/v1/workflows", about: { name: event.workflow } },
    { path: "/api/v1/schedules" },
    { path: "/api/v1/backfills" },
    // Versions of packages say how many unfinished runs need them.
    { path: "/api/v1/packages/{name}/versions" },
    OVERVIEW,
  ],
  "task.*": (event) => [
    { path: "/api/v1/runs/{run}", about: { run: event.run } },
    { path: "/api/v1/workflows/{name}/grid", about: { name: event.workflow } },
    { path: "/api/v1/pools" },
  ],
  // Several a second for each busy reactor: pages that show firings count these events, or watch the reactor.
  "reactor.fired": () => [],
  "reactor.*": (event) => [
    { path: "/api/v1/reactors", about: { name: event.reactor } },
    { path: "/api/v1/graphs" },
    { path: "/api/v1/accumulators" },
    OVERVIEW,
  ],
  "accumulator.*": (event) => [
    { path: "/api/v1/accumulators", about: { name: event.accumulator } },
    { path: "/api/v1/reactors" },
    OVERVIEW,
  ],
  "dead_letter.*": () => [{ path: "/api/v1/accumulators" }, { path: "/api/v1/reactors" }, OVERVIEW],
  "component.*": () => [{ path: "/api/v1/reactors" }, { path: "/api/v1/accumulators" }, OVERVIEW],
  "package.*": () => [
    { path: "/api/v1/packages" },
    { path: "/api/v1/import-errors" },
    { path: "/api/v1/workflows" },
    { path: "/api/v1/graphs" },
    { path: "/api/v1/reactors" },
    { path: "/api/v1/accumulators" },
    { path: "/api/v1/schedules" },
    { path: "/api/v1/triggers" },
    OVERVIEW,
  ],
  "leadership.*": () => [{ path: "/api/v1/nodes" }, { path: "/api/v1/system" }, OVERVIEW],
  "node.*": () => [{ path: "/api/v1/nodes" }, OVERVIEW],
  "change.made": outdatedByChange,
  "events.gap": () => [{ path: "" }],
};

export function outdatedBy(event: FeedEvent): Outdated[] {
  const kind = event.type.split(".")[0];
  const entry = TABLE[event.type] ?? TABLE[`${kind}.*`];
  return entry ? entry(event) : [];
}

interface RequestParams {
  params?: { path?: Record<string, unknown> };
}

/** Whether an entry concerns a query of the cache: `[method, path, { params }]`. */
export function concerns(entry: Outdated, key: readonly unknown[]): boolean {
  const [, path, request] = key;
  if (typeof path !== "string" || !isBelow(path, entry.path)) return false;
  const parameters = (request as RequestParams | undefined)?.params?.path ?? {};
  return Object.entries(entry.about ?? {}).every(
    ([name, value]) => !(name in parameters) || parameters[name] === value,
  );
}

function isBelow(path: string, parent: string): boolean {
  return path === parent || path.startsWith(`${parent}/`) || parent === "";
}
