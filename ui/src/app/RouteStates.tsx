import { Link } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { messageOf } from "@/api/problem";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { ErrorState } from "@/design/ErrorState/ErrorState";
import { Page } from "@/design/Page/Page";
import { useConnection } from "@/live/LiveProvider";

export function NotFound() {
  return (
    <Page title="Not found">
      <EmptyState title="There is no page at this address.">
        <Link to="/">Go to the home page</Link>
      </EmptyState>
    </Page>
  );
}

/** A page that cannot be shown: the rest of the product goes on. */
export function PageError({ error, reset }: { error: unknown; reset: () => void }) {
  if (isMissingFile(error)) return <PageFileMissing />;
  return (
    <Page title="This page failed">
      <ErrorState error={error} onRetry={reset} />
    </Page>
  );
}

/** Whether a file of the page could not be loaded: the server is away, or has a new version with other files. */
function isMissingFile(error: unknown): boolean {
  return /preload|dynamically imported module|module script/i.test(messageOf(error));
}

/** A browser remembers a file that it could not load, so only a fresh page asks for it again. */
function PageFileMissing() {
  const { state } = useConnection();
  const wasLost = useRef(state !== "live");
  useEffect(() => {
    if (state === "live" && wasLost.current) location.reload();
  }, [state]);
  return (
    <Page title="Not loaded">
      <ErrorState
        error={new Error("The server does not answer with this page. It may be away, or have a new version.")}
        onRetry={() => location.reload()}
      />
    </Page>
  );
}
