import { Link } from "@tanstack/react-router";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { ErrorState } from "@/design/ErrorState/ErrorState";
import { Page } from "@/design/Page/Page";

export function NotFound() {
  return (
    <Page title="Not found">
      <EmptyState title="There is no page at this address.">
        <Link to="/">Go to the home page</Link>
      </EmptyState>
    </Page>
  );
}

/** A defect of a page: the rest of the product goes on. */
export function PageError({ error, reset }: { error: unknown; reset: () => void }) {
  return (
    <Page title="This page failed">
      <ErrorState error={error} onRetry={reset} />
    </Page>
  );
}
