import { type FormEvent, useState } from "react";
import { api } from "@/api/client";
import { messageOf } from "@/api/problem";
import { ROOT } from "@/api/root";
import { INSTANCE_TENANT } from "@/api/tenant";
import { Button } from "@/design/Button/Button";
import { Field } from "@/design/Field/Field";
import { keepAddress } from "./keptAddress";
import styles from "./SignInForm.module.css";

/** Signs in with an account, a key, or at the issuer: whichever the server offers. */
export function SignInForm({ onSignedIn }: { onSignedIn: () => void }) {
  const { data } = api.useQuery("get", "/api/v1/session");
  const [usesKey, setUsesKey] = useState(false);
  const [typed, setTyped] = useState({ account: "", password: "", tenant: INSTANCE_TENANT, key: "" });
  const signIn = api.useMutation("post", "/api/v1/session", { onSuccess: onSignedIn });
  const methods = data?.methods ?? ["account"];
  const submit = (event: FormEvent) => {
    event.preventDefault();
    signIn.mutate({ body: { ...typed, key: usesKey ? typed.key : null } });
  };
  const error = signIn.error ? messageOf(signIn.error) : undefined;
  const change = (name: keyof typeof typed) => (value: string) => setTyped({ ...typed, [name]: value });
  return (
    <form className={styles.form} onSubmit={submit}>
      {usesKey ? (
        <TextField label="API key" kind="password" isFirst value={typed.key} onChange={change("key")} error={error} />
      ) : (
        <>
          <TextField
            label="Account"
            autoComplete="username"
            value={typed.account}
            onChange={change("account")}
            isFirst
          />
          <TextField
            label="Password"
            kind="password"
            autoComplete="current-password"
            value={typed.password}
            onChange={change("password")}
            error={error}
          />
          <details>
            <summary className={styles.summary}>Tenant: {typed.tenant}</summary>
            <TextField label="Tenant" value={typed.tenant} onChange={change("tenant")} />
          </details>
        </>
      )}
      <Button look="primary" type="submit" isBusy={signIn.isPending}>
        Sign in
      </Button>
      {methods.includes("oidc") && <Button onClick={leaveForIssuer}>Sign in with your organization</Button>}
      {methods.includes("key") && (
        <Button look="quiet" onClick={() => setUsesKey(!usesKey)}>
          {usesKey ? "Use an account" : "Use an API key"}
        </Button>
      )}
    </form>
  );
}

/** The issuer sends the browser back to the start page; from there it goes to the page that was asked for. */
function leaveForIssuer(): void {
  keepAddress();
  location.assign(`${ROOT}/api/v1/session/oidc`);
}

interface TextFieldProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  kind?: "text" | "password";
  autoComplete?: string;
  error?: string | undefined;
  isFirst?: boolean;
}

function TextField({ label, value, onChange, kind = "text", autoComplete = "off", ...options }: TextFieldProps) {
  const { error, isFirst = false } = options;
  return (
    <Field label={label} error={error}>
      {(attributes) => (
        <input
          {...attributes}
          type={kind}
          required
          // biome-ignore lint/a11y/noAutofocus: this form is all that there is to do
          autoFocus={isFirst}
          autoComplete={autoComplete}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
}
