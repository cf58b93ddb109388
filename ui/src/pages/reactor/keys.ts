/** The keys of a keyed reactor, as people read them. */

/** The key that a reader has written, in the form of `keyText`; text that looks like another key is in quotes. */
export function parseKey(text: string): unknown {
  try {
    const key: unknown = JSON.parse(text);
    return typeof key === "string" || Number.isSafeInteger(key) || (typeof key === "object" && key) ? key : text;
  } catch {
    return text;
  }
}

/** Text as it is, in quotes if it looks like another key; numbers, tuples and bytes as the JSON that the API takes. */
export function keyText(key: unknown): string {
  return typeof key === "string" && parseKey(key) === key ? key : JSON.stringify(key);
}

/** Whether a firing, a dead letter or a state belongs to a key. */
export function hasKey(one: { key?: unknown }): boolean {
  return one.key !== null && one.key !== undefined;
}
