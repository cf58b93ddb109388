/** The keys of a keyed reactor, as people read them. */

/** Text as it is; numbers, tuples and bytes as the JSON that the API takes. */
export function keyText(key: unknown): string {
  return typeof key === "string" ? key : JSON.stringify(key);
}

/** Whether a firing, a dead letter or a state belongs to a key. */
export function hasKey<Keyed extends { key?: unknown }>(one: Keyed): boolean {
  return one.key !== null && one.key !== undefined;
}
