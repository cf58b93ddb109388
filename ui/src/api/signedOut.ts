/**
 * Whether the server has refused to know who uses the page, as its answers say.
 *
 * It stays so until `/me` succeeds. Until then nothing else is asked: pages that go on asking would only be refused, and
 * too many refusals lock their address out.
 */

import { ROOT } from "./root";

type Listener = () => void;

const ME = "/api/v1/me";
/** What people need to sign in; a refusal there is one of a wrong password. */
const SESSION = "/api/v1/session";

const listeners = new Set<Listener>();
let isRefused = false;

export function isSignedOut(): boolean {
  return isRefused;
}

/** Calls the listener whenever `isSignedOut` changes. */
export function onSignedOutChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Whether to send a request: only those that lead to a session while there is none. */
export function mayAsk(url: string): boolean {
  return !isRefused || [ME, SESSION].includes(pathOf(url));
}

export function noteAnswer(status: number, url: string): void {
  const path = pathOf(url);
  if (status === 401 && path !== SESSION) become(true);
  else if (status === 200 && path === ME) become(false);
}

function become(refused: boolean): void {
  if (refused === isRefused) return;
  isRefused = refused;
  for (const listener of listeners) listener();
}

function pathOf(url: string): string {
  return new URL(url).pathname.slice(ROOT.length);
}
