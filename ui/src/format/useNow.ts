/** The time, for texts such as "4 s ago": one timer for the whole page. */

import { useSyncExternalStore } from "react";

const SECOND = 1000;
const listeners = new Set<() => void>();
let now = new Date();
let timer: ReturnType<typeof setInterval> | null = null;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(tick, SECOND);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0 && timer !== null) {
      clearInterval(timer);
      timer = null;
    }
  };
}

function tick(): void {
  now = new Date();
  for (const listener of listeners) listener();
}

export function useNow(): Date {
  return useSyncExternalStore(subscribe, () => now);
}
