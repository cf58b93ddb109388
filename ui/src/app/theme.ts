/** Dark or light: that of the system, until someone chooses. */

import { useSyncExternalStore } from "react";

export type Theme = "light" | "dark";

const KEY = "tidemill.theme";
const root = document.documentElement;
const listeners = new Set<() => void>();

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ({ matches }) => {
  if (localStorage.getItem(KEY) === null) show(matches ? "dark" : "light");
});

function show(theme: Theme): void {
  root.dataset.theme = theme;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const current = (): Theme => (root.dataset.theme === "dark" ? "dark" : "light");

export function toggleTheme(): void {
  const theme = current() === "dark" ? "light" : "dark";
  localStorage.setItem(KEY, theme);
  show(theme);
}

export function useTheme(): { theme: Theme } {
  return { theme: useSyncExternalStore(subscribe, current) };
}
