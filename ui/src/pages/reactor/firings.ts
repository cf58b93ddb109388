/** The firings that the page has seen: which are new, what lies between them, what each one did. */

import type { Schema } from "@/api/types";
import { hasKey, keyText } from "./keys";

export type Firing = Schema<"FiringView">;

/** Firings that the page keeps; at some hundred a second, the server has forgotten them long before. */
const KEPT = 500;

/** Adds what the server answered (newest first) to what is known. */
export function mergeFirings(known: Firing[], read: Firing[]): Firing[] {
  const ids = new Set(known.slice(0, read.length + KEPT).map(({ id }) => id));
  const added = read.filter(({ id }) => !ids.has(id));
  if (added.length === 0) return known;
  return [...added, ...known].sort((one, other) => compareTimes(other.at, one.at)).slice(0, KEPT);
}

function compareTimes(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

/** The number of firings between a firing and the one before it that the page has not seen. */
export function unseenBetween(newer: Firing, older: Firing): number {
  const [series, number] = seriesAndNumber(newer.id);
  const [olderSeries, olderNumber] = seriesAndNumber(older.id);
  return series === olderSeries ? Math.max(0, number - olderNumber - 1) : 0;
}

/** An id is the name of the reactor, its start, and a number that counts. */
function seriesAndNumber(id: string): [series: string, number: number] {
  const at = id.lastIndexOf("-");
  return [id.slice(0, at), Number(id.slice(at + 1))];
}

/** The firing before the one at `index`; of a keyed reactor, the one before that the page has seen of the same key. */
export function firingBefore(firings: Firing[], index: number): Firing | undefined {
  const firing = firings[index];
  if (firing === undefined || !hasKey(firing)) return firings[index + 1];
  const key = keyText(firing.key);
  return firings.slice(index + 1).find((one) => keyText(one.key) === key);
}

/** The inputs that differ from those of the firing before: what made the reactor fire. */
export function changedInputs(firing: Firing, before: Firing | undefined): string[] {
  const present = Object.keys(firing.inputs).filter((name) => firing.inputs[name] !== null);
  if (before === undefined || (!hasKey(firing) && unseenBetween(firing, before) > 0)) return [];
  return present.filter((name) => digestOf(firing.inputs[name]) !== digestOf(before.inputs[name]));
}

function digestOf(value: unknown): string {
  if (!Array.isArray(value)) return JSON.stringify(value) ?? "";
  return `${value.length} ${JSON.stringify([value[0], value.at(-1)])}`;
}

export interface FiringNodes {
  ran: Set<string>;
  failed: Set<string>;
}

const NODES = new WeakMap<Firing, FiringNodes>();

/** The nodes that ran, and the one that failed, as `graph/node`; counted once for each firing. */
export function nodesOf(firing: Firing): FiringNodes {
  const known = NODES.get(firing);
  if (known !== undefined) return known;
  const nodes: FiringNodes = { ran: new Set(), failed: new Set() };
  for (const [graph, result] of Object.entries(firing.results)) {
    for (const node of result.ran) nodes.ran.add(`${graph}/${node}`);
    if (result.error) nodes.failed.add(`${graph}/${result.error.node}`);
  }
  NODES.set(firing, nodes);
  return nodes;
}

/** What a firing led to, in one line: the outputs that are not null, or the node that failed. */
export function outcomeOf(firing: Firing): { text: string; isError: boolean } {
  const results = Object.values(firing.results);
  const errors = results.flatMap(({ error }) => (error ? [error.message] : []));
  if (errors.length > 0) return { text: errors.join("; "), isError: true };
  const outputs = results.flatMap((result) => Object.entries(result.outputs)).filter(([, value]) => value !== null);
  return { text: outputs.map(([name, value]) => `${name} ${shortValue(value)}`).join("  "), isError: false };
}

/** A value in a few words: `bid 1.5 ask 2`, `200 × …`. */
export function shortValue(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? "none" : `${value.length} × …`;
  if (typeof value === "number") return String(Number(value.toPrecision(7)));
  if (typeof value === "string") return value;
  if (value === null || typeof value !== "object") return String(value);
  return Object.entries(value)
    .map(([name, field]) => `${name} ${shortValue(field)}`)
    .join(" ");
}
