/** The cache of answers; events of the feed say when one is out of date, so nothing here polls. */

import { QueryClient } from "@tanstack/react-query";
import { Problem } from "./problem";

const MINUTE = 60_000;

export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: MINUTE,
        refetchOnWindowFocus: false,
        retry: (count, error) => error instanceof Problem && error.isTransient && count < 3,
        // An error stays inside the panel that needed the answer.
        throwOnError: false,
      },
      mutations: { retry: false },
    },
  });
}
