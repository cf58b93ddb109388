import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { ROOT } from "@/api/root";
import { Dialog } from "@/design/Dialog/Dialog";
import styles from "./SignIn.module.css";
import { SignInForm } from "./SignInForm";
import { ME } from "./useMe";

/** The page of a server that wants to know who you are; after it comes the page that was asked for. */
export function SignIn() {
  const queries = useQueryClient();
  return (
    <main className={styles.page}>
      <div className={styles.card}>
        <h1 className={styles.title}>
          <img src={`${ROOT}/favicon.svg`} width="28" height="28" alt="" /> Tidemill
        </h1>
        <SignInForm onSignedIn={() => void goOn(queries)} />
      </div>
    </main>
  );
}

/** The session has ended while a page is open: what was typed there stays. */
export function SignInAgain() {
  const queries = useQueryClient();
  return (
    <Dialog title="Your session has ended" onClose={() => location.assign(`${ROOT}/`)}>
      <p>Sign in again to go on where you are.</p>
      <SignInForm onSignedIn={() => void goOn(queries)} />
    </Dialog>
  );
}

/** Asks who we are now: once that is known everything else may be asked again. */
async function goOn(queries: QueryClient): Promise<void> {
  await queries.refetchQueries({ queryKey: ME });
  await queries.invalidateQueries();
}
