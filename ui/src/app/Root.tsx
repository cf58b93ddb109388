import { Problem } from "@/api/problem";
import { ErrorState } from "@/design/ErrorState/ErrorState";
import { LiveProvider } from "@/live/LiveProvider";
import { Shell } from "./Shell";
import { SignIn } from "./SignIn";
import { useMe } from "./useMe";

/** The product for someone the server knows, the sign-in page for everyone else. */
export function Root() {
  const me = useMe();
  if (me.data !== undefined) {
    return (
      <LiveProvider>
        <Shell />
      </LiveProvider>
    );
  }
  if (me.error instanceof Problem && me.error.status === 401) return <SignIn />;
  return me.error ? <ErrorState error={me.error} onRetry={() => void me.refetch()} /> : null;
}
