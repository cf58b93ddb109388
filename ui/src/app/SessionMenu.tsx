import { useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import { ROOT } from "@/api/root";
import { actAs, actingTenant, INSTANCE_TENANT } from "@/api/tenant";
import { useAllTenants } from "@/api/wholeLists";
import { Button } from "@/design/Button/Button";
import styles from "./SessionMenu.module.css";
import { useMe } from "./useMe";

/** Who is signed in, for which tenant; an admin of the instance chooses another one here. */
export function SessionMenu() {
  const { data: me } = useMe();
  const queries = useQueryClient();
  const signOut = api.useMutation("delete", "/api/v1/session", {
    onSuccess: () => {
      actAs(null);
      void queries.resetQueries();
    },
  });
  if (me === undefined) return null;
  return (
    <div className={styles.session}>
      <div className={styles.who} title={`${me.actor} (${me.role})`}>
        {me.actor} · {me.role}
      </div>
      {me.is_instance_admin || actingTenant() !== null ? (
        <TenantChoice current={me.tenant} />
      ) : (
        <div className={styles.tenant}>{me.tenant}</div>
      )}
      {me.actor !== "local" && (
        <Button look="quiet" onClick={() => signOut.mutate({})} isBusy={signOut.isPending}>
          Sign out
        </Button>
      )}
    </div>
  );
}

function TenantChoice({ current }: { current: string }) {
  const { data } = useAllTenants();
  const names = data?.items.map((tenant) => tenant.name) ?? [];
  if (names.length < 2) return null;
  const choose = (name: string) => {
    actAs(name === INSTANCE_TENANT ? null : name);
    // Everything on the page belongs to the tenant, and so does the connection of the feed.
    location.assign(`${ROOT}/`);
  };
  return (
    <select
      className={styles.choice}
      aria-label="Tenant"
      value={current}
      onChange={(event) => choose(event.target.value)}
    >
      {names.map((name) => (
        <option key={name}>{name}</option>
      ))}
    </select>
  );
}
