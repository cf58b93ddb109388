import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect } from "react";
import { Problem } from "@/api/problem";
import { onSignedOut } from "@/api/signedOut";
import { ErrorState } from "@/design/ErrorState/ErrorState";
import { LiveProvider } from "@/live/LiveProvider";
import { takeKeptAddress } from "./keptAddress";
import { Shell } from "./Shell";
import { SignIn, SignInAgain } from "./SignIn";
import { useMe } from "./useMe";

/** The product for someone the server knows, the sign-in page for everyone else. */
export function Root() {
  const me = useMe();
  const isRefused = me.error instanceof Problem && me.error.status === 401;
  useSignedOut();
  useKeptAddress(me.data !== undefined);
  if (me.data !== undefined) {
    return (
      <LiveProvider>
        <Shell />
        {isRefused && <SignInAgain />}
      </LiveProvider>
    );
  }
  if (isRefused) return <SignIn />;
  return me.error ? <ErrorState error={me.error} onRetry={() => void me.refetch()} /> : null;
}

/** Any answer may be the first to say that the session has ended: ask who we are, and the page follows. */
function useSignedOut(): void {
  const queries = useQueryClient();
  useEffect(() => onSignedOut(() => void queries.invalidateQueries({ queryKey: ["get", "/api/v1/me"] })), [queries]);
}

function useKeptAddress(isSignedIn: boolean): void {
  const navigate = useNavigate();
  useEffect(() => {
    const address = isSignedIn ? takeKeptAddress() : null;
    if (address !== null) void navigate({ to: address, replace: true });
  }, [isSignedIn, navigate]);
}
