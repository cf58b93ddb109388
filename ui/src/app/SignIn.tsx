import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api } from "@/api/client";
import { messageOf } from "@/api/problem";
import { Button } from "@/design/Button/Button";
import { Field } from "@/design/Field/Field";
import styles from "./SignIn.module.css";

/** The page of a server that wants to know who you are. */
export function SignIn() {
  const queries = useQueryClient();
  const [account, setAccount] = useState("");
  const [tenant, setTenant] = useState("public");
  const [password, setPassword] = useState("");
  const signIn = api.useMutation("post", "/api/v1/session", { onSuccess: () => void queries.resetQueries() });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    signIn.mutate({ body: { account, password, tenant } });
  };
  return (
    <main className={styles.page}>
      <form className={styles.form} onSubmit={submit}>
        <h1 className={styles.title}>
          <img src="/favicon.svg" width="28" height="28" alt="" /> Tidemill
        </h1>
        <Field label="Account">
          {(attributes) => (
            <input
              {...attributes}
              autoComplete="username"
              value={account}
              onChange={(event) => setAccount(event.target.value)}
            />
          )}
        </Field>
        <Field label="Password" error={signIn.error ? messageOf(signIn.error) : undefined}>
          {(attributes) => (
            <input
              {...attributes}
              type="password"
              autoComplete="current-password"
              value={password}
              onChange={(event) => setPassword(event.target.value)}
            />
          )}
        </Field>
        <Field label="Tenant">
          {(attributes) => <input {...attributes} value={tenant} onChange={(event) => setTenant(event.target.value)} />}
        </Field>
        <Button look="primary" type="submit" isBusy={signIn.isPending}>
          Sign in
        </Button>
      </form>
    </main>
  );
}
