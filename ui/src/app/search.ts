/**
 * The part of an address after `?`, as plain texts.
 *
 * The router would read and write values as JSON: a search for `12e45678` would become a number, and then nothing.
 */

type Search = Record<string, unknown>;

export function parseSearch(text: string): Search {
  return Object.fromEntries(new URLSearchParams(text));
}

/** Values that are not defined leave the address. */
export function stringifySearch(search: Search): string {
  const given = Object.entries(search).filter(([, value]) => value !== undefined && value !== null);
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text === "" ? "" : `?${text}`;
}
