/** The task that the panel of a run page shows: `?task=&index=&attempt=&view=`. */

import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";

export interface Selection {
  task: string;
  /** The element of a mapped task; `null` is the task as a whole. */
  index: number | null;
  /** The attempt whose log is shown; `null` is all of them. */
  attempt: number | null;
  view: string | null;
}

export type Change = Partial<Selection> | null;

interface Search {
  task?: unknown;
  index?: unknown;
  attempt?: unknown;
  view?: unknown;
  /** What the log of the task is searched for. */
  find?: unknown;
}

export function useSelection(): [selection: Selection | null, change: (change: Change) => void] {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const change = useCallback(
    (change: Change) =>
      void navigate({
        to: ".",
        replace: true,
        search: (previous: Search) => ({ ...previous, ...toSearch(change) }),
      }),
    [navigate],
  );
  return [readSelection(search), change];
}

function readSelection({ task, index, attempt, view }: Search): Selection | null {
  if (task === undefined) return null;
  return {
    task: String(task),
    index: index === undefined ? null : Number(index),
    attempt: attempt === undefined ? null : Number(attempt),
    view: view === undefined ? null : String(view),
  };
}

/** `null` values leave the address; another task forgets what was chosen of the previous one. */
function toSearch(change: Change): Search {
  if (change === null)
    return { task: undefined, index: undefined, attempt: undefined, view: undefined, find: undefined };
  const isOther = change.task !== undefined;
  const base: Search = isOther ? { index: undefined, attempt: undefined, view: undefined } : {};
  return { ...base, ...Object.fromEntries(Object.entries(change).map(([name, value]) => [name, value ?? undefined])) };
}
