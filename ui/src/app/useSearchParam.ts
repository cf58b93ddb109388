/** A part of a page's state that lives in its address, so that a link leads to it. */

import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";

export function useSearchParam(name: string, fallback: string): [value: string, set: (value: string) => void] {
  const search = useSearch({ strict: false }) as Record<string, unknown>;
  const navigate = useNavigate();
  const set = useCallback(
    (value: string) =>
      void navigate({
        to: ".",
        replace: true,
        search: (previous: Record<string, unknown>) => ({
          ...previous,
          [name]: value === fallback ? undefined : value,
        }),
      }),
    [navigate, name, fallback],
  );
  const value = search[name];
  return [value === undefined ? fallback : String(value), set];
}
