/** Says when an answer shows that the session has ended. */

type Listener = () => void;

/** They answer 401 to those who are not signed in yet, and to a wrong password. */
const EXPECTED = new Set(["/api/v1/me", "/api/v1/session"]);
const listeners = new Set<Listener>();

export function onSignedOut(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function noteRefusal(status: number, url: string): void {
  if (status !== 401 || EXPECTED.has(new URL(url).pathname)) return;
  for (const listener of listeners) listener();
}
