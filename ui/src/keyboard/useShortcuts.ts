/** Shortcuts of the keyboard: single keys, and `g` followed by a key. Never while something is being typed. */

import { useEffect } from "react";

/** How long after `g` the second key counts. */
const SEQUENCE = 1000;

export type Shortcuts = Record<string, () => void>;

/** Calls the action of a key ("j", "?") or of a sequence ("g h"); "mod+k" also while something is typed. */
export function useShortcuts(shortcuts: Shortcuts): void {
  useEffect(() => {
    let leader = Number.NEGATIVE_INFINITY;
    const onKey = (event: KeyboardEvent) => {
      const action = actionOf(event, shortcuts, event.timeStamp - leader < SEQUENCE);
      if (action) {
        event.preventDefault();
        action();
      }
      leader = event.key === "g" && !isTyping(event) ? event.timeStamp : Number.NEGATIVE_INFINITY;
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [shortcuts]);
}

export function actionOf(event: KeyboardEvent, shortcuts: Shortcuts, isAfterLeader: boolean): (() => void) | undefined {
  if (event.ctrlKey || event.metaKey) return shortcuts[`mod+${event.key.toLowerCase()}`];
  if (event.altKey || isTyping(event) || isPressing(event) || document.querySelector("dialog[open]")) return undefined;
  return (isAfterLeader ? shortcuts[`g ${event.key}`] : undefined) ?? shortcuts[event.key];
}

function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement | null;
  return target?.matches("input, textarea, select, [contenteditable]") ?? false;
}

/** Enter on a link or a button is for that link or button. */
function isPressing(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement | null;
  return event.key === "Enter" && (target?.matches("a, button, summary, [role=button]") ?? false);
}
