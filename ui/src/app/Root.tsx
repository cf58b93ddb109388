import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useSyncExternalStore } from "react";
import { Problem } from "@/api/problem";
import { isSignedOut, onSignedOutChange } from "@/api/signedOut";
import { actAs, actingTenant } from "@/api/tenant";
import { ErrorState } from "@/design/ErrorState/ErrorState";
import { LiveProvider } from "@/live/LiveProvider";
import { takeKeptAddress } from "./keptAddress";
import { Shell } from "./Shell";
import { SignIn, SignInAgain } from "./SignIn";
import { ME, useMe } from "./useMe";

/** The product for someone the server knows, the sign-in page for everyone else. */
export function Root() {
  const me = useMe();
  const isRefused = useSignedOut();
  useOwnTenantWhenRefused(me);
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

/** Any answer may be the first to say that the session has ended: ask who we are, in case it was a late one. */
function useSignedOut(): boolean {
  const queries = useQueryClient();
  const isRefused = useSyncExternalStore(onSignedOutChange, isSignedOut);
  useEffect(() => {
    if (isRefused) void queries.invalidateQueries({ queryKey: ME }, { cancelRefetch: false });
  }, [isRefused, queries]);
  return isRefused;
}

/** The tenant that was chosen is gone, or someone else has signed in, who may not act for it. */
function useOwnTenantWhenRefused({ error, refetch }: ReturnType<typeof useMe>): void {
  useEffect(() => {
    if (!(error instanceof Problem) || ![403, 404].includes(error.status) || actingTenant() === null) return;
    actAs(null);
    void refetch();
  }, [error, refetch]);
}

function useKeptAddress(isSignedIn: boolean): void {
  const navigate = useNavigate();
  useEffect(() => {
    const address = isSignedIn ? takeKeptAddress() : null;
    if (address !== null) void navigate({ to: address, replace: true });
  }, [isSignedIn, navigate]);
}
