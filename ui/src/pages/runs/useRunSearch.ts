import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import type { RunSearch } from "./filter";

const NAMES = ["q", "workflow", "state", "cause", "from", "to", "unresolved"] as const;

/** The filters in the address; an empty one is left out of it. */
export function useRunSearch(): [search: RunSearch, change: (part: Partial<RunSearch>) => void] {
  const found = useSearch({ strict: false }) as Record<string, unknown>;
  const navigate = useNavigate();
  const [q, workflow, state, cause, from, to, unresolved] = NAMES.map((name) => String(found[name] ?? ""));
  const search = useMemo(
    () => ({
      q: q ?? "",
      workflow: workflow ?? "",
      state: state ?? "",
      cause: cause ?? "",
      from: from ?? "",
      to: to ?? "",
      unresolved: unresolved ?? "",
    }),
    [q, workflow, state, cause, from, to, unresolved],
  );
  const change = useCallback(
    (part: Partial<RunSearch>) => {
      const values = Object.fromEntries(Object.entries(part).map(([name, value]) => [name, value || undefined]));
      void navigate({ to: ".", replace: true, search: (previous: object) => ({ ...previous, ...values }) });
    },
    [navigate],
  );
  return [search, change];
}
