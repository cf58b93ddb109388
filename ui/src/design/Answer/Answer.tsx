import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ErrorState } from "../ErrorState/ErrorState";
import { Skeleton } from "../Skeleton/Skeleton";

interface Props<Data> {
  query: UseQueryResult<Data, unknown>;
  children: (data: Data) => ReactNode;
  /** Shown instead of grey lines while the first answer is on its way. */
  loading?: ReactNode;
}

/** The answer of a request: loading, error or content. An answer that is being read again stays on the page. */
export function Answer<Data>({ query, children, loading }: Props<Data>) {
  if (query.data !== undefined) return <>{children(query.data)}</>;
  if (query.isError) return <ErrorState error={query.error} onRetry={() => void query.refetch()} />;
  return <>{loading ?? <Skeleton />}</>;
}
